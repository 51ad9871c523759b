-- Where the newest run of a thread began, which the inspector's page shows first.

-- name: index_run_starts
CREATE INDEX run_starts ON events (user_id, thread_id, id) WHERE kind = 'run-start';
