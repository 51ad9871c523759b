"""What a model is shown of a file, and what it has seen of it already."""
