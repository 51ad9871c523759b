"""The Reflector: a model, or rules, that condenses the oldest observations."""
