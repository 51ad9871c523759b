-- Observations of a thread.

-- name: last_observation
SELECT max(id) FROM observations WHERE user_id = :user_id AND thread_id = :thread_id;

-- name: append_observation
-- Ids count up within the thread: a writer that did not see the newest one misses.
INSERT INTO observations (user_id, thread_id, id, level, parent_id, first_id, last_id, parts,
                          provisional, run_id, body, blob, tokens, created_at)
SELECT :user_id, :thread_id, :id, :level, :parent_id, :first_id, :last_id, :parts,
       :provisional, :run_id, :body, :blob, :tokens, {now}
WHERE :id = 1 + (SELECT coalesce(max(id), 0) FROM observations
                 WHERE user_id = :user_id AND thread_id = :thread_id);

-- name: observations
-- Observations whose interval ends at a node or later, and those with given ids.
SELECT o.id, o.level, o.parent_id, o.first_id, o.last_id, o.parts, o.provisional,
       o.body,
       CASE WHEN o.blob IS NULL THEN '' ELSE coalesce(b.object, b.codec, 'lost') END, b.data,
       o.tokens, o.created_at
FROM observations AS o
{observation_blob}
WHERE o.user_id = :user_id AND o.thread_id = :thread_id
  AND (o.last_id >= :ending_from
       OR o.id IN (SELECT value{as_bigint} FROM {each_text}(:ids{as_jsonb})))
ORDER BY o.id;
