"""Prompts as a pure function of the log; only `attachments` does I/O."""
