-- The queue of runs for workers.

-- name: queue_lock
FOR UPDATE OF q, r, t SKIP LOCKED
