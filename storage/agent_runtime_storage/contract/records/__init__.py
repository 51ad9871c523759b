"""The values that the store reads and writes, by subject."""
