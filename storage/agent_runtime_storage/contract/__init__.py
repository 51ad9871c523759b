"""The promises of the store: protocols by subject, records, errors, ids and valid names."""
