"""Files: attaching and storing them, their media types, and references to them in messages."""
