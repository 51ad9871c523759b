-- The inbox, the events and the usage of threads.

-- name: count_post
-- Items count apart from nodes: anybody may post, while only the lease's holder appends nodes.
UPDATE threads SET last_inbox = last_inbox + 1
WHERE user_id = :user_id AND id = :thread_id AND hidden = ''
RETURNING last_inbox;

-- name: inbox_room
SELECT 1 WHERE (
    SELECT count(*) FROM inbox
    WHERE user_id = :user_id AND thread_id = :thread_id AND kind = :kind
) < :most;

-- name: user_inbox_room
SELECT 1 WHERE (SELECT count(*) FROM inbox WHERE user_id = :user_id AND kind = :kind) < :most;

-- name: post
INSERT INTO inbox (user_id, thread_id, id, run_id, kind, body, blob, created_at)
SELECT user_id, id, last_inbox, :run_id, :kind, :body, :blob, {now}
FROM threads WHERE user_id = :user_id AND id = :thread_id;

-- name: inbox
SELECT i.id, i.run_id, i.kind, i.body,
       CASE WHEN i.blob IS NULL THEN '' ELSE coalesce(b.object, b.codec, 'lost') END, b.data,
       i.created_at
FROM inbox AS i
LEFT JOIN blobs AS b ON b.user_id = i.user_id AND b.thread_id = i.thread_id AND b.hash = i.blob
WHERE i.user_id = :user_id AND i.thread_id = :thread_id
ORDER BY i.id;

-- name: events
SELECT id, run_id, kind, node_id, data, created_at FROM events
WHERE user_id = :user_id AND thread_id = :thread_id AND id > :after
ORDER BY id LIMIT :limit;

-- name: thread_events
-- Without an event the thread's row comes alone.
SELECT t.created_at, e.id, e.run_id, e.kind, e.node_id, e.data, e.created_at
FROM threads AS t
LEFT JOIN events AS e ON e.user_id = :user_id AND e.thread_id = :thread_id AND e.id > :after
WHERE t.user_id = :user_id AND t.id = :thread_id AND t.hidden = ''
ORDER BY e.id LIMIT :limit;

-- name: tree_below
WITH RECURSIVE tree (id, thread_id) AS (
    SELECT r.id, r.thread_id FROM runs AS r
    WHERE r.user_id = :user_id AND r.id = :run_id AND {visible_run_filter}
    UNION ALL
    SELECT c.id, c.thread_id FROM tree AS p {ordered_join} runs AS c
        ON c.user_id = :user_id AND c.parent_run_id = p.id
)

-- name: tree_threads
{tree_below}
SELECT DISTINCT o.id, o.last_event, o.created_at
FROM tree AS t {ordered_join} threads AS o ON o.user_id = :user_id AND o.id = t.thread_id;

-- name: tree_events
-- By thread, so that a page has no gaps.
-- The cursors first, so that the index finds the events after them.
{tree_below}, place (id, thread_id, after) AS MATERIALIZED (
    SELECT t.id, t.thread_id, coalesce((SELECT CAST(a.value ->> 1 AS bigint)
                                        FROM {each_json}(:after{as_jsonb}) AS a
                                        WHERE a.value ->> 0 = t.thread_id), 0)
    FROM tree AS t
)
SELECT e.thread_id, e.id, e.run_id, e.kind, e.node_id, e.data, e.created_at
FROM place AS t {ordered_join} events AS e
    ON e.user_id = :user_id AND e.thread_id = t.thread_id AND e.run_id = t.id AND e.id > t.after
ORDER BY e.thread_id, e.id LIMIT :limit;

-- name: usage_of_tree
SELECT purpose, {usage_sums}
FROM usage WHERE user_id = :user_id AND root_run_id = :id GROUP BY purpose ORDER BY purpose;

-- name: usage_of_runs
SELECT run_id, {usage_sums}
FROM usage WHERE user_id = :user_id AND root_run_id = :id GROUP BY run_id ORDER BY run_id;

-- name: usage_of_run
SELECT purpose, {usage_sums}
FROM usage WHERE user_id = :user_id AND run_id = :id GROUP BY purpose ORDER BY purpose;

-- name: usage_of_thread
SELECT purpose, {usage_sums}
FROM usage WHERE user_id = :user_id AND thread_id = :id GROUP BY purpose ORDER BY purpose;

-- name: recent_usage
SELECT run_id, root_run_id, node_id, purpose, model, prompt_tokens, cached_tokens,
       cache_write_tokens, completion_tokens, counted_tokens, cost, reported, id, created_at
FROM usage
WHERE user_id = :user_id AND model = :model AND reported = 1
ORDER BY created_at DESC, thread_id DESC, id DESC LIMIT :limit;
