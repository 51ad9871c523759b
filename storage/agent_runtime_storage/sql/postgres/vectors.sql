-- Vectors.  `nearest_vectors` (migration 3) chooses between an exact search and an index.

-- name: vector_index_is_due
SELECT vector_index_is_due(:user_id::text, :model::text, :dimensions::integer);

-- name: allow_time
-- An index over many vectors takes longer than any other statement may.
SELECT set_config('statement_timeout', '0', true);

-- name: make_vector_index
SELECT index_vectors(id, dimensions) FROM embedders
WHERE user_id = :user_id AND model = :model;

-- name: put_vector
-- Affects no row, and misses, unless the model has this number of dimensions.
INSERT INTO vectors
    (user_id, thread_id, model, source, source_id, part, embedder, dimensions, embedding, digest)
SELECT user_id, :thread_id, model, :source, :source_id, :part, id, dimensions, :embedding::vector,
       :digest
FROM embedders
WHERE user_id = :user_id AND model = :model AND dimensions = :dimensions
ON CONFLICT (user_id, thread_id, model, source, source_id, part)
DO UPDATE SET embedding = excluded.embedding, digest = excluded.digest;

-- name: vectors_by_digest
SELECT DISTINCT ON (digest) digest, embedding::text FROM vectors
WHERE user_id = :user_id AND model = :model AND digest <> ''
  AND digest IN (SELECT jsonb_array_elements_text(:digests::jsonb));

-- name: search_vectors
SELECT thread_id, source, source_id, part, similarity
FROM nearest_vectors(
    :user_id::text, :model::text, NULL, :sources::jsonb, :query::vector, :limit::integer)
ORDER BY similarity DESC, thread_id, source, source_id, part;

-- name: search_vectors_of_thread
SELECT thread_id, source, source_id, part, similarity
FROM nearest_vectors(
    :user_id::text, :model::text, :thread_id::text, :sources::jsonb, :query::vector,
    :limit::integer)
ORDER BY similarity DESC, source, source_id, part;
