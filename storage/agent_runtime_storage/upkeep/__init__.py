"""Deletion, export and import of threads, copies of a database, its checks and sizes."""
