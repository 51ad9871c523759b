-- The queue of runs for workers.

-- name: queue_lock
