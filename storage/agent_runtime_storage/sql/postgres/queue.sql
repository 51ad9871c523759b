-- The queue of runs for workers.

-- name: queue_in_order
-- The planner takes few of the waiting runs for free, and would look at all of them to sort these.
SELECT set_config('enable_sort', 'off', true);

-- name: queue_lock
FOR UPDATE OF q, r, t SKIP LOCKED

-- name: queue_blame_lock
FOR UPDATE OF queue, r SKIP LOCKED

-- name: queue_placed_filter
(b.spec::json -> 'internal' -> 'delegation' ->> 'placed') IS NOT NULL

-- name: queue_apart_filter
coalesce((b.spec::json -> 'internal' -> 'delegation' ->> 'apart')::boolean, false)

-- name: queue_background_filter
coalesce((b.spec::json -> 'internal' -> 'delegation' ->> 'background')::boolean, false)
