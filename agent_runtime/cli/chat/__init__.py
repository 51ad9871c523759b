"""A conversation at a terminal: its line editor, its commands, and steering while it works."""
