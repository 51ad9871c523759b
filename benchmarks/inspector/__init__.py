"""The inspector: what its page waits for."""
