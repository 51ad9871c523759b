"""Sources of notes on where an agent works: system, git, the instructions of the project."""
