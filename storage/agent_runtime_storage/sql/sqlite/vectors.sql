-- Vectors.  A search compares the signs of all candidates, then the best of these exactly.

-- name: vector_index_is_due
-- Whether vectors from before migration 21 lack their signs.
SELECT EXISTS (
    SELECT 1 FROM vectors INDEXED BY vectors_without_signs
    WHERE user_id = :user_id AND model = :model AND signs IS NULL);

-- name: allow_time
SELECT 0;

-- name: make_vector_index
-- Some at a time, as other writers wait: the next writes go on.
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

-- name: likely_by_signs
-- Those without signs are added to the candidates, so none is left out before it has them.  Signs
-- of another number of dimensions cannot be compared.
  AND (signs IS NULL OR length(signs) = length(:signs))
ORDER BY vec_distance_hamming(vec_bit(coalesce(signs, :signs)), vec_bit(:signs))
LIMIT :candidates + (
    SELECT count(*) FROM vectors INDEXED BY vectors_without_signs
    WHERE user_id = :user_id AND model = :model AND signs IS NULL)

-- name: nearest_by_signs
SELECT v.thread_id, v.source, v.source_id, v.part,
       1 - vec_distance_cosine(v.embedding, :query) AS similarity
FROM near CROSS JOIN vectors AS v ON v.rowid = near.id
WHERE v.dimensions = :dimensions
ORDER BY similarity DESC, v.thread_id, v.source, v.source_id, v.part
LIMIT :limit

-- name: search_signs
WITH near (id) AS MATERIALIZED (
    SELECT rowid FROM vectors INDEXED BY vectors_by_signs
    WHERE user_id = :user_id AND model = :model
      AND thread_id NOT IN (SELECT id FROM threads WHERE user_id = :user_id AND hidden <> '')
      AND (:sources IS NULL OR source IN (SELECT value FROM json_each(:sources)))
    {likely_by_signs}
)
{nearest_by_signs};

-- name: search_signs_of_thread
WITH near (id) AS MATERIALIZED (
    SELECT rowid FROM vectors INDEXED BY vectors_by_signs
    WHERE user_id = :user_id AND model = :model AND thread_id = :thread_id
      AND EXISTS (
          SELECT 1 FROM threads WHERE user_id = :user_id AND id = :thread_id AND hidden = '')
      AND (:sources IS NULL OR source IN (SELECT value FROM json_each(:sources)))
    {likely_by_signs}
)
{nearest_by_signs};
