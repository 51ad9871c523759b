"""A run's access to its thread's log: nodes, branches and leases."""
