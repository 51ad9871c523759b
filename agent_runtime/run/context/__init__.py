"""Notes in the log on where an agent works, what is asked of it there, and its skills."""
