"""Prompts as pure functions of the log: branch and activation in, messages out."""
