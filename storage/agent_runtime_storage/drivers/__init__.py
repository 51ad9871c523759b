"""The databases: one driver each, all behind the protocol in `protocol.py`."""
