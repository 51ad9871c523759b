"""The queries and migrations of each SQL dialect, and the loader that reads them by name."""
