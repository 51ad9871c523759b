"""Conversation memory: the newest turns of a thread, for prompts that a program builds itself."""
