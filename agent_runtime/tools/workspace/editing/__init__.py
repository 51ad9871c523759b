"""Changes to text files: edits, patches, and why one does not fit."""
