"""The store, re-exported; it lives in `agent_runtime_storage`."""

from agent_runtime_storage import Store, UserStore, open_store

__all__ = ["Store", "UserStore", "open_store"]
