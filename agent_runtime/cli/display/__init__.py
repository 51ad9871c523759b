"""What a terminal, a pipe or a log file shows of a run while it works."""
