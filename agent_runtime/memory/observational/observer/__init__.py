"""Observers: write notes of an interval of the log, with a model or by rules."""
