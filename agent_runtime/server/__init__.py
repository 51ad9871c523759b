"""The HTTP service over a runtime, and the page that shows its threads."""
