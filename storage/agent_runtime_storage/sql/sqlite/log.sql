-- Read the log.

-- name: node_blob
LEFT JOIN blobs AS b ON b.user_id = :user_id AND b.thread_id = :thread_id AND b.hash = n.blob

-- name: call_blob
LEFT JOIN blobs AS b ON b.user_id = :user_id AND b.thread_id = :thread_id AND b.hash = k.blob

-- name: stretches
-- The branches of the threads' heads as stretches (see `stretch_start`), back to the first node
-- that is wanted.
WITH RECURSIVE asked (thread_id, least) AS (
    SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(:threads)
), stretch (thread_id, least, first, last) AS (
    SELECT t.id, a.least, (
               SELECT max(n.id) FROM nodes AS n
               WHERE n.user_id = :user_id AND n.thread_id = t.id AND n.id <= t.head
                 AND n.parent_id IS NOT n.id - 1),
           t.head
    FROM asked AS a CROSS JOIN threads AS t ON t.user_id = :user_id AND t.id = a.thread_id
    WHERE t.head IS NOT NULL AND t.hidden = ''
    UNION ALL
    SELECT s.thread_id, s.least, (
               SELECT max(n.id) FROM nodes AS n
               WHERE n.user_id = :user_id AND n.thread_id = s.thread_id AND n.id <= p.parent_id
                 AND n.parent_id IS NOT n.id - 1),
           p.parent_id
    FROM stretch AS s
    CROSS JOIN nodes AS p ON p.user_id = :user_id AND p.thread_id = s.thread_id AND p.id = s.first
    WHERE s.first > s.least AND p.parent_id < p.id
)
SELECT thread_id, coalesce(first, 1), last FROM stretch ORDER BY thread_id, last;

-- name: outlines
WITH place (thread_id, ids) AS MATERIALIZED (
    SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(:places)
)
SELECT n.thread_id, n.id, n.parent_id, n.role, n.tokens, n.created_at
FROM place AS p
CROSS JOIN json_each(p.ids) AS wanted
CROSS JOIN nodes AS n
  ON n.user_id = :user_id AND n.thread_id = p.thread_id AND n.id = wanted.value
ORDER BY n.thread_id, n.id;

-- name: children
WITH child (id) AS (
    SELECT id FROM nodes
    WHERE user_id = :user_id AND thread_id = :thread_id AND parent_id IS :parent_id
)
{node_columns}
FROM child AS c
CROSS JOIN nodes AS n ON n.user_id = :user_id AND n.thread_id = :thread_id AND n.id = c.id
{node_blob}
UNION ALL
{call_columns}
FROM child AS c
CROSS JOIN calls AS k ON k.user_id = :user_id AND k.thread_id = :thread_id AND k.node_id = c.id
{call_blob};

-- name: activation
-- One row if the thread exists: the head if it exists, the id of the activation that applies, then
-- the activation's columns, NULL if its row is missing.  One that is anchored at the head was made
-- after the head, which still names the one before.
WITH wanted (head, id) AS (
    SELECT n.id, coalesce(
        (SELECT max(id) FROM activations
         WHERE user_id = :user_id AND thread_id = :thread_id AND anchor IS :head),
        n.activation_id,
        0)
    FROM threads AS t
    LEFT JOIN nodes AS n ON n.user_id = t.user_id AND n.thread_id = t.id AND n.id = :head
    WHERE t.user_id = :user_id AND t.id = :thread_id
)
SELECT w.head, w.id, {activation_columns}
FROM wanted AS w
LEFT JOIN activations AS a ON a.user_id = :user_id AND a.thread_id = :thread_id AND a.id = w.id
{activation_blobs};
