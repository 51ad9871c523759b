"""Plans: their values and changes, their versions in the store, and the tool `plan`."""
