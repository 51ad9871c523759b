-- Of what text a vector was made, so that the same text is not paid for twice.

-- name: add_digest
-- Empty where it is not known: of vectors written before this, or by an import.
ALTER TABLE vectors ADD COLUMN digest TEXT NOT NULL DEFAULT '';

-- name: index_vectors_by_digest
CREATE INDEX vectors_by_digest ON vectors (user_id, model, digest) WHERE digest <> '';
