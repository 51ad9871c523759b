"""The commands of the HTTP service."""
