"""Files for models: which a provider takes, and in what form."""
