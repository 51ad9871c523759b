"""The queue at the command line: work on it, look at it."""
