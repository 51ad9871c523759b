"""Sandboxes: what commands may read, change and reach."""
