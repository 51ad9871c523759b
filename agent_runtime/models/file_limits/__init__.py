"""How many files, and how large ones, a provider takes in one request."""
