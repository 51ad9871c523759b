"""What sentences of sixteen languages require, deny and count, by rules and without a model."""
