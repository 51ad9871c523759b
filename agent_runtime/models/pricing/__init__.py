"""What a model's call costs, and the most that it may cost."""
