"""Reflectors: condense old observations into one, with a model or by rules."""
