-- Vectors.  A search compares the signs of all candidates, then the best of these exactly.  The signs
-- lie in blocks of hundreds (see the migration `vector_blocks`); new vectors wait in rows of their own.

-- name: vector_index_is_due
-- Whether vectors from before migration 21 lack their signs.
SELECT EXISTS (
    SELECT 1 FROM vectors INDEXED BY vectors_without_signs
    WHERE user_id = :user_id AND model = :model AND signs IS NULL);

-- name: allow_time
SELECT 0;

-- name: make_vector_index
-- A few at a time, because other writers wait; the next writes continue.
UPDATE vectors
SET signs = CASE WHEN dimensions >= 128 AND dimensions % 8 = 0
                 THEN vec_quantize_binary(embedding) ELSE x'' END
WHERE rowid IN (
    SELECT rowid FROM vectors INDEXED BY vectors_without_signs
    WHERE user_id = :user_id AND model = :model AND signs IS NULL LIMIT 2000);

-- name: put_vector
-- Its foreign key to `embedders` holds the dimensions to those of the model.
INSERT INTO vectors
    (user_id, thread_id, model, source, source_id, part, dimensions, embedding, digest, signs)
VALUES
    (:user_id, :thread_id, :model, :source, :source_id, :part, :dimensions, :embedding, :digest,
     :signs)
ON CONFLICT (user_id, thread_id, model, source, source_id, part)
DO UPDATE SET embedding = excluded.embedding, digest = excluded.digest, signs = excluded.signs;

-- name: vectors_by_digest
SELECT digest, embedding FROM vectors
WHERE user_id = :user_id AND model = :model AND digest <> ''
  AND digest IN (SELECT value FROM json_each(:digests))
GROUP BY digest;

-- name: search_vectors
SELECT thread_id, source, source_id, part, 1 - vec_distance_cosine(embedding, :query) AS similarity
FROM vectors
WHERE user_id = :user_id AND model = :model AND dimensions = :dimensions
  AND thread_id NOT IN (SELECT id FROM threads WHERE user_id = :user_id AND hidden <> '')
  AND (:sources IS NULL OR source IN (SELECT value FROM json_each(:sources)))
ORDER BY similarity DESC, thread_id, source, source_id, part
LIMIT :limit;

-- name: search_vectors_of_thread
SELECT thread_id, source, source_id, part, 1 - vec_distance_cosine(embedding, :query) AS similarity
FROM vectors
WHERE user_id = :user_id AND thread_id = :thread_id AND model = :model
  AND dimensions = :dimensions
  AND EXISTS (
      SELECT 1 FROM threads WHERE user_id = :user_id AND id = :thread_id AND hidden = '')
  AND (:sources IS NULL OR source IN (SELECT value FROM json_each(:sources)))
ORDER BY similarity DESC, source, source_id, part
LIMIT :limit;

-- name: searched
-- Vectors of the wanted sources, in threads that are not hidden.
thread_id NOT IN (SELECT id FROM threads WHERE user_id = :user_id AND hidden <> '')
  AND (:sources IS NULL OR source IN (SELECT value FROM json_each(:sources)))

-- name: blocks_select
-- Signs of another number of dimensions cannot be compared.
SELECT thread_id, source, keys, signs, NULL AS distance FROM vector_blocks

-- name: waiting_select
SELECT thread_id, source, source_id, part,
       CASE WHEN signs IS NULL THEN NULL
            ELSE vec_distance_hamming(vec_bit(signs), vec_bit(:signs)) END AS distance
FROM waiting_vectors

-- name: likeliest
-- Those without signs are added to the candidates, so that none is left out before it has them.
ORDER BY distance
LIMIT :candidates + (
    SELECT count(*) FROM vectors INDEXED BY vectors_without_signs
    WHERE user_id = :user_id AND model = :model AND signs IS NULL)

-- name: likely_vectors
{blocks_select}
WHERE user_id = :user_id AND model = :model
  AND length(signs) = length(keys) / 12 * length(:signs) AND {searched}
UNION ALL
SELECT * FROM (
    {waiting_select}
    WHERE user_id = :user_id AND model = :model
      AND (signs IS NULL OR length(signs) = length(:signs)) AND {searched}
    {likeliest}
);

-- name: likely_vectors_of_thread
{blocks_select}
WHERE user_id = :user_id AND model = :model AND thread_id = :thread_id
  AND length(signs) = length(keys) / 12 * length(:signs) AND {searched}
UNION ALL
SELECT * FROM (
    {waiting_select}
    WHERE user_id = :user_id AND model = :model AND thread_id = :thread_id
      AND (signs IS NULL OR length(signs) = length(:signs)) AND {searched}
    {likeliest}
);

-- name: nearest_vectors
-- The vectors of given texts, `[[thread, source, part, [source id, …]], …]`.
WITH place (thread_id, source, part, ids) AS MATERIALIZED (
    SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
           json_extract(value, '$[3]')
    FROM json_each(:places)
)
SELECT v.thread_id, v.source, v.source_id, v.part,
       1 - vec_distance_cosine(v.embedding, :query) AS similarity
FROM place AS p
CROSS JOIN json_each(p.ids) AS wanted
CROSS JOIN vectors AS v
  ON v.user_id = :user_id AND v.thread_id = p.thread_id AND v.model = :model
 AND v.source = p.source AND v.source_id = wanted.value AND v.part = p.part
WHERE v.dimensions = :dimensions
  AND v.thread_id NOT IN (SELECT id FROM threads WHERE user_id = :user_id AND hidden <> '')
ORDER BY similarity DESC, v.thread_id, v.source, v.source_id, v.part
LIMIT :limit;

-- name: vectors_of_block
user_id = :user_id AND model = :model AND thread_id = :thread_id AND source = :source

-- name: sources_with_blocks_due
-- The threads, of those given, in which enough vectors wait and have signs.
SELECT w.thread_id, w.source
FROM json_each(:threads) AS t
CROSS JOIN waiting_vectors AS w
  ON w.user_id = :user_id AND w.model = :model AND w.thread_id = t.value
GROUP BY w.thread_id, w.source
HAVING count(*) >= 64 AND min(length(coalesce(w.signs, x''))) > 0;

-- name: open_vector_blocks
-- The blocks behind the first vector that waits, as blocks must not overlap, and the last one if it
-- is small, so that it grows.
DELETE FROM vector_blocks
WHERE {vectors_of_block}
  AND (last >= (SELECT min(source_id) FROM waiting_vectors WHERE {vectors_of_block})
       OR length(keys) < 12 * 512
          AND first = (SELECT max(first) FROM vector_blocks WHERE {vectors_of_block}));

-- name: make_vector_blocks
-- A few at a time, because other writers wait.  The parts of one source stay together: they have one rank.
INSERT INTO vector_blocks (user_id, model, thread_id, source, first, last, keys, signs)
SELECT :user_id, :model, :thread_id, :source, min(source_id), max(source_id),
       unhex(group_concat(printf('%016x%08x', source_id, part), '')),
       unhex(group_concat(hex(signs), ''))
FROM (
    SELECT source_id, part, signs, (rank() OVER (ORDER BY source_id) - 1) / 1024 AS number
    FROM waiting_vectors
    WHERE {vectors_of_block}
)
WHERE number < 8
GROUP BY number
HAVING count(*) >= 64 AND min(length(coalesce(signs, x''))) = max(length(signs))
   AND max(length(signs)) > 0;
