"""A cluster on one database: services, workers, faults from outside, what must hold after it."""
