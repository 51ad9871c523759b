-- The parents of nodes, as on Postgres, where the order matters to the planner.

-- name: drop_nodes_by_parent
DROP INDEX nodes_by_parent;

-- name: index_nodes_by_parent
CREATE INDEX nodes_by_parent ON nodes (user_id, parent_id, thread_id);
