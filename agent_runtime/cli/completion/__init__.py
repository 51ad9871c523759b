"""Completion of commands, options and ids in the user's shell."""
