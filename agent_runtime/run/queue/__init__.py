"""The queue: enqueue runs, and work on them in any process."""
