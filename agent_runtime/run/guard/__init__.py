"""Guards that stop or ask about a run that makes no progress."""
