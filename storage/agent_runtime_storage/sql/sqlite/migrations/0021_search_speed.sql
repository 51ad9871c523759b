-- The signs of each vector's numbers, in an index of their own.  A search compares these first, so
-- it reads a thirtieth of what the vectors take.

-- name: add_signs
-- Empty for vectors that are too short for it, and NULL for those from before this, until a write
-- has filled them: the function that does is not on every server.
ALTER TABLE vectors ADD COLUMN signs BLOB;

-- name: index_vectors_by_signs
-- With all that a search filters by, so that it reads no row that it does not want.
CREATE INDEX vectors_by_signs ON vectors (user_id, model, thread_id, source, signs);

-- name: index_vectors_without_signs
CREATE INDEX vectors_without_signs ON vectors (user_id, model) WHERE signs IS NULL;
