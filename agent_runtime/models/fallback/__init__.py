"""Several models for one task: when one fails, the next takes its place."""
