"""The command line in tmux, as a person uses it."""
