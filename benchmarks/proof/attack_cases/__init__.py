"""Attacks by models, tools, files, imports, other users: each case returns what got through."""
