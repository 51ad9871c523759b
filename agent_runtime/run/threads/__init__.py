"""Threads from the outside: read, branch, follow and delete them."""
