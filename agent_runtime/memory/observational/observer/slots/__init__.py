"""Slots by rules: verdicts, changes and agreements from the calls and results of an interval."""
