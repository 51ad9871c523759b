"""Sub-agents: a task handed over with all that they may know, and an outcome that was observed."""
