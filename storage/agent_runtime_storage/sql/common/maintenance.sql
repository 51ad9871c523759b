-- Check and measure a database as a whole.  These queries read the rows of all owners.

-- name: owners
SELECT user_id FROM threads WHERE hidden = ''
UNION
SELECT user_id FROM archives
ORDER BY user_id;

-- name: check_parents
-- A parent has a smaller number than its child, so a walk along parents always ends.
SELECT n.user_id, n.thread_id, n.id, n.parent_id
FROM nodes AS n
LEFT JOIN nodes AS p
    ON p.user_id = n.user_id AND p.thread_id = n.thread_id AND p.id = n.parent_id
WHERE n.parent_id IS NOT NULL AND (p.id IS NULL OR n.parent_id >= n.id) LIMIT :limit;

-- name: check_heads
SELECT t.user_id, t.id, t.head
FROM threads AS t
LEFT JOIN nodes AS n ON n.user_id = t.user_id AND n.thread_id = t.id AND n.id = t.head
WHERE t.head IS NOT NULL AND coalesce(n.status, '') <> 'closed' LIMIT :limit;

-- name: counted_select
SELECT user_id, thread_id, 'nodes' AS what, count(*) AS number, max(id) AS last
FROM nodes GROUP BY user_id, thread_id
UNION ALL
SELECT user_id, thread_id, 'activations', count(*), max(id)
FROM activations GROUP BY user_id, thread_id
UNION ALL
SELECT user_id, thread_id, 'events', count(*), max(id) FROM events GROUP BY user_id, thread_id
UNION ALL
SELECT user_id, thread_id, 'usage', count(*), max(id) FROM usage GROUP BY user_id, thread_id

-- name: counters_select
SELECT user_id, id, 'nodes' AS what, last_seq AS counter FROM threads WHERE hidden = ''
UNION ALL
SELECT user_id, id, 'activations', last_activation FROM threads WHERE hidden = ''
UNION ALL
SELECT user_id, id, 'events', last_event FROM threads WHERE hidden = ''
UNION ALL
SELECT user_id, id, 'usage', last_usage FROM threads WHERE hidden = ''

-- name: check_counters
-- Ids count up without gaps, so number, largest id and counter are equal.
SELECT t.user_id, t.id, t.what, coalesce(c.number, 0), coalesce(c.last, 0), t.counter
FROM ({counters_select}) AS t
LEFT JOIN ({counted_select}) AS c
    ON c.user_id = t.user_id AND c.thread_id = t.id AND c.what = t.what
WHERE coalesce(c.number, 0) <> t.counter OR coalesce(c.last, 0) <> t.counter LIMIT :limit;

-- name: check_inbox
-- Drained items leave gaps, so only the largest id can be compared.
SELECT t.user_id, t.id, max(i.id), t.last_inbox
FROM threads AS t JOIN inbox AS i ON i.user_id = t.user_id AND i.thread_id = t.id
GROUP BY t.user_id, t.id, t.last_inbox HAVING max(i.id) > t.last_inbox LIMIT :limit;

-- name: blobs_of_select
SELECT user_id, thread_id, 'node ' || id AS what, blob FROM nodes WHERE blob IS NOT NULL
UNION ALL
SELECT user_id, thread_id, 'call ' || position || ' of node ' || node_id, blob
FROM calls WHERE blob IS NOT NULL
UNION ALL
SELECT user_id, thread_id, 'activation ' || id, blob FROM activations WHERE blob IS NOT NULL
UNION ALL
SELECT user_id, thread_id, 'the prefix of activation ' || id, prefix_blob FROM activations
UNION ALL
SELECT user_id, thread_id, 'observation ' || id, blob FROM observations WHERE blob IS NOT NULL
UNION ALL
SELECT user_id, thread_id, 'plan ' || id, blob FROM plans WHERE blob IS NOT NULL
UNION ALL
SELECT user_id, thread_id, 'inbox item ' || id, blob FROM inbox WHERE blob IS NOT NULL
UNION ALL
SELECT user_id, thread_id, 'job ' || id, blob FROM jobs WHERE blob IS NOT NULL
UNION ALL
SELECT user_id, thread_id, 'file ' || id, blob FROM files
UNION ALL
SELECT user_id, thread_id, 'the output of run ' || id, output_blob
FROM runs WHERE output_blob IS NOT NULL

-- name: check_blobs
SELECT r.user_id, r.thread_id, r.what
FROM ({blobs_of_select}) AS r
LEFT JOIN blobs AS b
    ON b.user_id = r.user_id AND b.thread_id = r.thread_id AND b.hash = r.blob
WHERE b.hash IS NULL LIMIT :limit;

-- name: bodies_in_parts
SELECT user_id, thread_id, object, object_bytes FROM blobs
WHERE object > :after AND substr(object, 1, 6) = 'parts/'
ORDER BY object LIMIT :limit;

-- name: part_bytes
-- Only the length: a check must not fetch the bodies.
SELECT length(data) FROM blobs
WHERE user_id = :user_id AND thread_id = :thread_id AND hash = :hash;

-- name: check_calls
SELECT n.user_id, n.thread_id, n.id, count(*)
FROM calls AS k
JOIN nodes AS n ON n.user_id = k.user_id AND n.thread_id = k.thread_id AND n.id = k.node_id
WHERE k.status <> 'done' AND n.status = 'closed'
GROUP BY n.user_id, n.thread_id, n.id LIMIT :limit;

-- name: check_open_nodes
SELECT n.user_id, n.thread_id, n.id
FROM nodes AS n
WHERE n.status = 'open' AND NOT EXISTS (
    SELECT 1 FROM runs AS r
    WHERE r.user_id = n.user_id AND r.thread_id = n.thread_id AND r.open_node = n.id)
LIMIT :limit;

-- name: check_unfinished
-- Exchanges that a finished run left open: only resuming that run closes them.
SELECT r.user_id, r.thread_id, r.open_node, r.id, r.status
FROM runs AS r
WHERE r.open_node IS NOT NULL AND r.status NOT IN ('queued', 'running', 'suspended')
LIMIT :limit;

-- name: check_active_runs
SELECT t.user_id, t.id, t.active_run
FROM threads AS t
LEFT JOIN runs AS r ON r.user_id = t.user_id AND r.id = t.active_run AND r.thread_id = t.id
WHERE t.active_run IS NOT NULL
  AND coalesce(r.status, '') NOT IN ('queued', 'running', 'suspended') LIMIT :limit;

-- name: check_dead_runs
SELECT user_id, thread_id, id FROM runs
WHERE status = 'running' AND coalesce(lease_until, 0) < {now} LIMIT :limit;

-- name: check_orphan_blobs
-- Not where a blob has parts: those are blobs to which no row refers.
SELECT user_id, thread_id, count(*)
FROM (
    SELECT user_id, thread_id, hash FROM blobs
    EXCEPT
    SELECT user_id, thread_id, blob FROM ({blobs_of_select}) AS used) AS unused
WHERE NOT EXISTS (
    SELECT 1 FROM blobs AS b
    WHERE b.user_id = unused.user_id AND b.thread_id = unused.thread_id
      AND substr(b.object, 1, 6) = 'parts/')
GROUP BY user_id, thread_id LIMIT :limit;

-- name: check_archived
SELECT a.user_id, a.thread_id, a.place
FROM archives AS a JOIN threads AS t ON t.user_id = a.user_id AND t.id = a.thread_id
WHERE t.hidden = '' LIMIT :limit;

-- name: check_hidden
SELECT user_id, id, hidden FROM threads
WHERE hidden <> '' AND updated_at < {now} - :seconds LIMIT :limit;

-- name: contents_select
SELECT user_id, thread_id, 'nodes' AS what, length(body) AS bytes FROM nodes
UNION ALL
SELECT user_id, thread_id, 'calls', length(body) FROM calls
UNION ALL
SELECT user_id, thread_id, 'activations', length(body) FROM activations
UNION ALL
SELECT user_id, thread_id, 'observations', length(body) FROM observations
UNION ALL
SELECT user_id, thread_id, 'plans', length(body) FROM plans
UNION ALL
SELECT user_id, thread_id, 'events', {text_bytes}(data) FROM events
UNION ALL
SELECT user_id, thread_id, 'blobs', length(data) FROM blobs
UNION ALL
SELECT user_id, thread_id, 'inbox', length(body) FROM inbox
UNION ALL
SELECT user_id, thread_id, 'jobs', length(payload) FROM jobs
UNION ALL
SELECT user_id, thread_id, 'questions', length(body) + length(answer) FROM questions
UNION ALL
SELECT user_id, thread_id, 'runs', {text_bytes}(spec) + length(output) FROM runs
UNION ALL
SELECT user_id, thread_id, 'vectors', {vector_bytes}(embedding) FROM vectors
UNION ALL
SELECT user_id, thread_id, 'objects', object_bytes FROM blobs
WHERE object_bytes IS NOT NULL AND substr(object, 1, 6) <> 'parts/'

-- name: size_contents
SELECT what, sum(bytes){as_bigint} FROM ({contents_select}) AS held
GROUP BY what ORDER BY 2 DESC, 1;

-- name: size_owners
SELECT t.user_id, count(*), coalesce(sum(held.bytes), 0){as_bigint}
FROM threads AS t
LEFT JOIN (
    SELECT user_id, thread_id, sum(bytes){as_bigint} AS bytes
    FROM ({contents_select}) AS parts GROUP BY user_id, thread_id) AS held
  ON held.user_id = t.user_id AND held.thread_id = t.id
GROUP BY t.user_id ORDER BY 3 DESC, 1;

-- name: size_threads
SELECT t.user_id, t.id, t.title, held.bytes
FROM (
    SELECT user_id, thread_id, sum(bytes){as_bigint} AS bytes
    FROM ({contents_select}) AS parts GROUP BY user_id, thread_id
    ORDER BY bytes DESC, user_id, thread_id LIMIT :limit) AS held
JOIN threads AS t ON t.user_id = held.user_id AND t.id = held.thread_id
ORDER BY held.bytes DESC, t.user_id, t.id;
