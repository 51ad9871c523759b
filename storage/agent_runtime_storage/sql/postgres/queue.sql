-- The queue of runs for workers.

-- name: queue_lock
FOR UPDATE OF q, r, t SKIP LOCKED

-- name: queue_apart_filter
coalesce((b.spec::json -> 'internal' -> 'delegation' ->> 'apart')::boolean, false)

-- name: queue_background_filter
coalesce((b.spec::json -> 'internal' -> 'delegation' ->> 'background')::boolean, false)
