-- Check and measure a database as a whole.  These queries read the rows of all owners.

-- name: server_version
SELECT 'Postgres ' || current_setting('server_version');

-- name: thread_ids
-- Threads of sub-agents come last, as a copy of a thread includes them.
SELECT id, child FROM (
    SELECT t.id AS id, (EXISTS (
        SELECT 1 FROM runs AS r
        WHERE r.user_id = t.user_id AND r.thread_id = t.id
          AND r.parent_run_id IS NOT NULL))::int::bigint AS child
    FROM threads AS t WHERE t.user_id = :user_id AND t.hidden = '') AS found
WHERE (child, id) > (:child, :after)
ORDER BY child, id LIMIT :limit;

-- Checks.  Each returns the owner, the thread, and the values for its message.

-- name: check_file
-- The server checks its files itself, if `data_checksums` is on.
SELECT '', '', '' WHERE false LIMIT :limit;

-- name: check_references
-- References without a foreign key; the server checks the others.
SELECT n.user_id, n.thread_id, 'node ' || n.id, 'run ' || n.run_id
FROM nodes AS n LEFT JOIN runs AS r ON r.user_id = n.user_id AND r.id = n.run_id
WHERE n.run_id IS NOT NULL AND r.id IS NULL
UNION ALL
SELECT e.user_id, e.thread_id, 'event ' || e.id, 'run ' || e.run_id
FROM events AS e LEFT JOIN runs AS r ON r.user_id = e.user_id AND r.id = e.run_id
WHERE e.run_id IS NOT NULL AND r.id IS NULL
UNION ALL
SELECT e.user_id, e.thread_id, 'event ' || e.id, 'node ' || e.node_id
FROM events AS e
LEFT JOIN nodes AS n ON n.user_id = e.user_id AND n.thread_id = e.thread_id AND n.id = e.node_id
WHERE e.node_id IS NOT NULL AND n.id IS NULL
UNION ALL
SELECT u.user_id, u.thread_id, 'usage ' || u.id, 'node ' || u.node_id
FROM usage AS u
LEFT JOIN nodes AS n ON n.user_id = u.user_id AND n.thread_id = u.thread_id AND n.id = u.node_id
WHERE u.node_id IS NOT NULL AND n.id IS NULL
UNION ALL
SELECT a.user_id, a.thread_id, 'activation ' || a.id, 'run ' || a.run_id
FROM activations AS a LEFT JOIN runs AS r ON r.user_id = a.user_id AND r.id = a.run_id
WHERE a.run_id IS NOT NULL AND r.id IS NULL
UNION ALL
SELECT r.user_id, r.thread_id, 'run ' || r.id, 'node ' || r.open_node
FROM runs AS r
LEFT JOIN nodes AS n ON n.user_id = r.user_id AND n.thread_id = r.thread_id AND n.id = r.open_node
WHERE r.open_node IS NOT NULL AND n.id IS NULL
LIMIT :limit;

-- name: size_total
SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class AS c
WHERE c.relnamespace = to_regnamespace('agent_runtime') AND c.relkind IN ('r', 'p');

-- name: size_tables
-- With their indexes.
SELECT c.relname, pg_total_relation_size(c.oid) FROM pg_class AS c
WHERE c.relnamespace = to_regnamespace('agent_runtime') AND c.relkind IN ('r', 'p')
ORDER BY 2 DESC, 1;
