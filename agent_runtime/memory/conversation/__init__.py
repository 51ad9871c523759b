"""Conversation memory: the newest whole turns of a thread, for use outside a run."""
