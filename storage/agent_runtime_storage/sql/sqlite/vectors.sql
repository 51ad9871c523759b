-- Vectors.  A search compares every candidate: exact, and fast enough up to about 100,000.

-- name: vector_index_is_due
-- There is no index.
SELECT 0;

-- name: allow_time
SELECT 0;

-- name: make_vector_index
SELECT 0;

-- name: put_vector
-- Its foreign key to `embedders` holds the dimensions to those of the model.
INSERT INTO vectors
    (user_id, thread_id, model, source, source_id, part, dimensions, embedding, digest)
VALUES
    (:user_id, :thread_id, :model, :source, :source_id, :part, :dimensions, :embedding, :digest)
ON CONFLICT (user_id, thread_id, model, source, source_id, part)
DO UPDATE SET embedding = excluded.embedding, digest = excluded.digest;

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
