-- Where branches part, so that a long branch is known by its few stretches.

-- name: index_forks
-- Nodes that do not follow the one numbered before them.
CREATE INDEX nodes_forks ON nodes (user_id, thread_id, id) WHERE parent_id IS DISTINCT FROM id - 1;
