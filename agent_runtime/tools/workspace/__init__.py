"""Tools for one folder: files, search and shell commands."""
