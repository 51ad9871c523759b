"""What a process does for all of its runs: admit them, keep their leases, sweep, shut down."""
