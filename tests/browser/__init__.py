"""The inspector's page in a real browser."""
