"""What the store promises: protocols by subject, records, errors, ids and valid names."""
