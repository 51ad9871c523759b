"""Node memory: what one node of a workflow remembers of a conversation."""
