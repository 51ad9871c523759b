"""Whole runs against servers as strict as the providers that they speak as."""
