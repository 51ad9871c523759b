-- Vectors.  What is compared with what, and how, is decided in `nearest_vectors`.

-- name: embedder_dimensions
SELECT dimensions FROM embedders WHERE user_id = :user_id AND model = :model;

-- name: vector_index_is_due
SELECT vector_index_is_due(:user_id::text, :model::text, :dimensions::integer);

-- name: allow_time
SELECT set_config('statement_timeout', '0', true);

-- name: make_vector_index
SELECT index_vectors(id, dimensions) FROM embedders
WHERE user_id = :user_id AND model = :model;

-- name: put_embedder
INSERT INTO embedders (user_id, model, dimensions, created_at)
VALUES (:user_id, :model, :dimensions, extract(epoch FROM clock_timestamp()))
ON CONFLICT (user_id, model) DO NOTHING;

-- name: resize_embedder
-- Only a model that has no vectors (any more) may have another length.
UPDATE embedders SET dimensions = :dimensions
WHERE user_id = :user_id AND model = :model AND dimensions <> :dimensions
  AND NOT EXISTS (
      SELECT 1 FROM vectors WHERE user_id = :user_id AND model = :model);

-- name: embedder_fits
SELECT 1 FROM embedders
WHERE user_id = :user_id AND model = :model AND dimensions = :dimensions;

-- name: put_vector
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

-- name: embedded
SELECT source_id FROM vectors
WHERE user_id = :user_id AND thread_id = :thread_id AND model = :model AND source = :source
  AND part = 0
  AND source_id IN (SELECT value::bigint FROM jsonb_array_elements_text(:source_ids::jsonb))
ORDER BY source_id;

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

-- name: vectors_filter
user_id = :user_id AND thread_id = :thread_id
  AND (:model::text IS NULL OR model = :model::text)
  AND (:source::text IS NULL OR source = :source::text)
  AND (:source_ids::jsonb IS NULL
       OR source_id IN (SELECT value::bigint FROM jsonb_array_elements_text(:source_ids::jsonb)));

-- name: count_vectors
SELECT count(*) FROM vectors WHERE {vectors_filter};

-- name: delete_vectors
DELETE FROM vectors WHERE {vectors_filter};

-- name: purge_vectors
DELETE FROM vectors
WHERE user_id = :user_id AND thread_id IN (SELECT jsonb_array_elements_text(:threads::jsonb));

-- name: embedders
SELECT counted.model, e.dimensions, counted.vectors
FROM (
    SELECT model, count(*) AS vectors FROM vectors WHERE user_id = :user_id GROUP BY model
) AS counted
JOIN embedders AS e ON e.user_id = :user_id AND e.model = counted.model
ORDER BY counted.model;

-- name: vectors_to_embed
SELECT DISTINCT other.thread_id, other.source, other.source_id, other.part
FROM vectors AS other
WHERE other.user_id = :user_id AND other.model <> :model
  AND other.thread_id NOT IN (SELECT id FROM threads WHERE user_id = :user_id AND hidden <> '')
  AND NOT EXISTS (
      SELECT 1 FROM vectors AS own
      WHERE own.user_id = :user_id AND own.thread_id = other.thread_id AND own.model = :model
        AND own.source = other.source AND own.source_id = other.source_id
        AND own.part = other.part)
ORDER BY other.thread_id, other.source, other.source_id, other.part
LIMIT :limit;

-- name: vectors_of_thread
SELECT model, source, source_id, part, embedding::text
FROM vectors
WHERE user_id = :user_id AND thread_id = :thread_id
ORDER BY model, source, source_id, part
LIMIT :limit;

-- name: vectors_of_thread_after
SELECT model, source, source_id, part, embedding::text
FROM vectors
WHERE user_id = :user_id AND thread_id = :thread_id
  AND (model, source, source_id, part) > (:model, :source, :source_id, :part)
ORDER BY model, source, source_id, part
LIMIT :limit;
