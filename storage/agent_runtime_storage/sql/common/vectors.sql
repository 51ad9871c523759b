-- Vectors, and the models that made them.

-- name: embedder_dimensions
SELECT dimensions FROM embedders WHERE user_id = :user_id AND model = :model;

-- name: put_embedder
INSERT INTO embedders (user_id, model, dimensions, created_at)
VALUES (:user_id, :model, :dimensions, {now})
ON CONFLICT (user_id, model) DO NOTHING;

-- name: resize_embedder
-- Only a model without vectors may change its number of dimensions.
UPDATE embedders SET dimensions = :dimensions
WHERE user_id = :user_id AND model = :model AND dimensions <> :dimensions
  AND NOT EXISTS (
      SELECT 1 FROM vectors WHERE user_id = :user_id AND model = :model);

-- name: embedder_fits
SELECT 1 FROM embedders
WHERE user_id = :user_id AND model = :model AND dimensions = :dimensions;

-- name: embedded
SELECT source_id FROM vectors
WHERE user_id = :user_id AND thread_id = :thread_id AND model = :model AND source = :source
  AND part = 0 AND source_id IN (SELECT value{as_bigint} FROM {each_text}(:source_ids{as_jsonb}))
ORDER BY source_id;

-- name: vectors_filter
user_id = :user_id AND thread_id = :thread_id
  AND (:model{as_text} IS NULL OR model = :model{as_text})
  AND (:source{as_text} IS NULL OR source = :source{as_text})
  AND (:source_ids{as_jsonb} IS NULL OR source_id IN (
       SELECT value{as_bigint} FROM {each_text}(:source_ids{as_jsonb})));

-- name: count_vectors
SELECT count(*) FROM vectors WHERE {vectors_filter};

-- name: delete_vectors
DELETE FROM vectors WHERE {vectors_filter};

-- name: purge_vectors
DELETE FROM vectors
WHERE user_id = :user_id AND thread_id IN (SELECT value FROM {each_text}(:threads{as_jsonb}));

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
SELECT model, source, source_id, part, embedding{as_text}
FROM vectors
WHERE user_id = :user_id AND thread_id = :thread_id
ORDER BY model, source, source_id, part
LIMIT :limit;

-- name: vectors_of_thread_after
SELECT model, source, source_id, part, embedding{as_text}
FROM vectors
WHERE user_id = :user_id AND thread_id = :thread_id
  AND (model, source, source_id, part) > (:model, :source, :source_id, :part)
ORDER BY model, source, source_id, part
LIMIT :limit;
