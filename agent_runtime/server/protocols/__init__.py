"""The protocols that front ends and other agents speak, over one translation of a run's events."""
