"""Recall of earlier messages: the tool `recall`, semantic search, and the embedding behind it."""
