"""What a run's agent is told of the place where it works, as notes in the log."""
