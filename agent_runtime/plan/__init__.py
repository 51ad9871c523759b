"""Plans: the model of a plan, its versions in the store, and the tool that keeps it."""
