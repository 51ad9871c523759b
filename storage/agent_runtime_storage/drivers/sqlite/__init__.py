"""A local database file: one writer thread with group commit, a few reader threads."""
