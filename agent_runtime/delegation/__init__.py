"""Sub-agents: delegate a task to a child run and observe its outcome."""
