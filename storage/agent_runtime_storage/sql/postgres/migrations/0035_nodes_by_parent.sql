-- The parents of nodes, in an order that nobody takes for that of the nodes themselves: a plan for any
-- values expects a row or two of a thread, so owner and thread alone looked as good to it as the whole
-- key, and each step read the index of its whole thread.

-- name: drop_nodes_by_parent
DROP INDEX nodes_by_parent;

-- name: index_nodes_by_parent
CREATE INDEX nodes_by_parent ON nodes (user_id, parent_id, thread_id);
