-- Read the log.  Nodes (tag 0) and their calls (tag 1) come in one result, so that both are from
-- one snapshot:
--   0, id, parent_id, kind, status, role, run_id, activation_id, body..., tokens, created_at
--   1, node_id, position, tool, status, outcome, NULL, shown, body..., tokens, NULL
-- where body... is three columns: the inline body; its place ('' for inline only, the codec of the
-- data in the next column, the key of an object, 'lost' if the blob is missing); and the blob's
-- data.

-- name: node_columns
SELECT 0, n.id, n.parent_id, n.kind, n.status, n.role, n.run_id, n.activation_id,
       n.body,
       CASE WHEN n.blob IS NULL THEN '' ELSE coalesce(b.object, b.codec, 'lost') END, b.data,
       n.tokens,
       n.created_at

-- name: call_columns
SELECT 1, k.node_id, k.position, k.tool, k.status, k.outcome, NULL, k.shown,
       k.body,
       CASE WHEN k.blob IS NULL THEN '' ELSE coalesce(b.object, b.codec, 'lost') END, b.data,
       k.tokens, NULL

-- name: branch
-- The walk ends in a damaged thread too, because it follows only parents that are smaller.  It
-- carries keys; bodies are joined afterwards.  Without ORDER BY, which would sort with the bodies.
WITH RECURSIVE chain (id, parent_id, depth) AS (
    SELECT id, parent_id, 1 FROM nodes
    WHERE user_id = :user_id AND thread_id = :thread_id AND id = :head
    UNION ALL
    SELECT n.id, n.parent_id, c.depth + 1
    FROM chain AS c {ordered_join} nodes AS n
      ON n.user_id = :user_id AND n.thread_id = :thread_id AND n.id = c.parent_id
    WHERE c.parent_id < c.id AND c.id > :first AND c.depth < :limit
)
{node_columns}
FROM chain AS c
{ordered_join} nodes AS n ON n.user_id = :user_id AND n.thread_id = :thread_id AND n.id = c.id
{node_blob}
UNION ALL
{call_columns}
FROM chain AS c
{ordered_join} calls AS k ON k.user_id = :user_id AND k.thread_id = :thread_id AND k.node_id = c.id
{call_blob};

-- name: lineage
-- Reads only keys; the walk ends at :first, whether that is on the branch or not.
WITH RECURSIVE chain (id, parent_id) AS (
    SELECT id, parent_id FROM nodes
    WHERE user_id = :user_id AND thread_id = :thread_id AND id = :head
    UNION ALL
    SELECT n.id, n.parent_id
    FROM chain AS c {ordered_join} nodes AS n
      ON n.user_id = :user_id AND n.thread_id = :thread_id AND n.id = c.parent_id
    WHERE c.parent_id < c.id AND c.parent_id >= :first
)
SELECT id, parent_id FROM chain ORDER BY id;

-- name: node
{node_columns}
FROM nodes AS n
{node_blob}
WHERE n.user_id = :user_id AND n.thread_id = :thread_id AND n.id = :id
UNION ALL
{call_columns}
FROM calls AS k
{call_blob}
WHERE k.user_id = :user_id AND k.thread_id = :thread_id AND k.node_id = :id;

-- name: call
{call_columns}
FROM calls AS k
{call_blob}
WHERE k.user_id = :user_id AND k.thread_id = :thread_id AND k.node_id = :node_id
  AND k.position = :position;

-- name: activation_columns
a.id, a.anchor, a.run_id, a.cause, a.body,
CASE WHEN a.blob IS NULL THEN '' ELSE coalesce(b.object, b.codec, 'lost') END, b.data,
coalesce(p.object, p.codec, 'lost'), p.data, a.created_at

-- name: activation_blobs
LEFT JOIN blobs AS b ON b.user_id = :user_id AND b.thread_id = :thread_id AND b.hash = a.blob
LEFT JOIN blobs AS p
    ON p.user_id = :user_id AND p.thread_id = :thread_id AND p.hash = a.prefix_blob

-- name: activations
SELECT {activation_columns} FROM activations AS a {activation_blobs}
WHERE a.user_id = :user_id AND a.thread_id = :thread_id
ORDER BY a.id;

-- name: blob
SELECT coalesce(object, codec), data FROM blobs
WHERE user_id = :user_id AND thread_id = :thread_id AND hash = :hash;

-- name: put_blob
-- The key is the hash of the content, so a blob that exists is the same one.
INSERT INTO blobs (user_id, thread_id, hash, codec, data, object, object_bytes)
VALUES (:user_id, :thread_id, :hash, :codec, :data, :object, :object_bytes)
ON CONFLICT (user_id, thread_id, hash) DO NOTHING;
