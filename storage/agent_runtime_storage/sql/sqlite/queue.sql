-- The queue of runs for workers.

-- name: queue_in_order
SELECT 1;

-- name: queue_lock

-- name: queue_blame_lock

-- name: queue_placed_filter
json_extract(b.spec, '$.internal.delegation.placed') IS NOT NULL

-- name: queue_apart_filter
coalesce(json_extract(b.spec, '$.internal.delegation.apart'), 0)

-- name: queue_background_filter
coalesce(json_extract(b.spec, '$.internal.delegation.background'), 0)
