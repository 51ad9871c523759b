"""The life of a run: start or takeover, the loop, limits, and the end."""
