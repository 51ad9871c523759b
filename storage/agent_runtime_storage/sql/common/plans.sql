-- Plans of a thread.

-- name: plan_columns
SELECT p.id, p.node_id, p.call_id, p.run_id,
       p.body,
       CASE WHEN p.blob IS NULL THEN '' ELSE coalesce(b.object, b.codec, 'lost') END, b.data,
       p.created_at

-- name: stretch_start
-- The first node of a stretch, an unbroken row of nodes that each follow the one before.  The
-- condition is that of the partial index `nodes_forks`, so the index answers in one step.
SELECT max(n.id) FROM nodes AS n
WHERE n.user_id = :user_id AND n.thread_id = :thread_id AND n.parent_id {differs_from} n.id - 1

-- name: plan
-- Walks the branch by its stretches, back to the newest one with a plan.
WITH RECURSIVE stretch (first, last) AS (
    SELECT ({stretch_start} AND n.id <= :head), :head{as_bigint}
    UNION ALL
    SELECT ({stretch_start} AND n.id <= f.parent_id), f.parent_id
    FROM stretch AS s
    {ordered_join} nodes AS f
        ON f.user_id = :user_id AND f.thread_id = :thread_id AND f.id = s.first
    WHERE f.parent_id < f.id AND NOT EXISTS (
        SELECT 1 FROM plans
        WHERE user_id = :user_id AND thread_id = :thread_id
          AND node_id BETWEEN s.first AND s.last)
)
{plan_columns}
FROM plans AS p {plan_blob}
WHERE p.user_id = :user_id AND p.thread_id = :thread_id AND p.id = (
    SELECT max((
        SELECT q.id FROM plans AS q
        WHERE q.user_id = :user_id AND q.thread_id = :thread_id
          AND q.node_id BETWEEN s.first AND s.last
        ORDER BY q.node_id DESC, q.id DESC LIMIT 1))
    FROM stretch AS s);

-- name: plans
WITH RECURSIVE stretch (first, last) AS (
    SELECT ({stretch_start} AND n.id <= :head), :head{as_bigint}
    UNION ALL
    SELECT ({stretch_start} AND n.id <= f.parent_id), f.parent_id
    FROM stretch AS s
    {ordered_join} nodes AS f
        ON f.user_id = :user_id AND f.thread_id = :thread_id AND f.id = s.first
    WHERE f.parent_id < f.id AND s.first > :first
)
{plan_columns}
FROM stretch AS s
{ordered_join} plans AS p
  ON p.user_id = :user_id AND p.thread_id = :thread_id
  AND p.node_id BETWEEN {greatest}(s.first, :first) AND s.last
{plan_blob}
ORDER BY p.id DESC LIMIT :limit;

-- name: last_plan
SELECT max(id) FROM plans WHERE user_id = :user_id AND thread_id = :thread_id;

-- name: append_plan
-- Ids count up within the thread: of two changes to the same version one misses.
INSERT INTO plans (user_id, thread_id, id, node_id, call_id, run_id, body, blob, created_at)
SELECT :user_id, :thread_id, :id, :node_id, :call_id, :run_id, :body, :blob, {now}
WHERE :id = 1 + (SELECT coalesce(max(id), 0) FROM plans
                 WHERE user_id = :user_id AND thread_id = :thread_id)
  AND EXISTS (SELECT 1 FROM runs
              WHERE user_id = :user_id AND id = :run_id AND open_node = :node_id);
