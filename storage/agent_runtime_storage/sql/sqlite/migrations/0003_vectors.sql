-- Vectors of what lies in threads, for search by likeness.

-- name: create_embedders
-- The models that made an owner's vectors.  One row a model, so that vectors of different lengths
-- never stand under one name.
CREATE TABLE embedders (
    user_id     TEXT    NOT NULL CHECK (user_id <> ''),
    model       TEXT    NOT NULL CHECK (model <> ''),
    dimensions  INTEGER NOT NULL CHECK (dimensions BETWEEN 1 AND 16000),
    created_at  REAL    NOT NULL,
    PRIMARY KEY (user_id, model),
    UNIQUE (user_id, model, dimensions)
) STRICT, WITHOUT ROWID;

-- name: create_vectors
-- Float32, little-endian.  The key begins with the thread, because that is how vectors are filtered
-- and deleted; it also tells an owner's vectors of one model without a look at the rows.  The rows
-- are too long for WITHOUT ROWID: they would spill (2.1 times the space).
CREATE TABLE vectors (
    user_id     TEXT    NOT NULL,
    thread_id   TEXT    NOT NULL,
    model       TEXT    NOT NULL,
    source      TEXT    NOT NULL CHECK (source <> ''),
    source_id   INTEGER NOT NULL,
    part        INTEGER NOT NULL CHECK (part >= 0),
    dimensions  INTEGER NOT NULL,
    embedding   BLOB    NOT NULL CHECK (length(embedding) = 4 * dimensions),
    PRIMARY KEY (user_id, thread_id, model, source, source_id, part),
    FOREIGN KEY (user_id, thread_id) REFERENCES threads (user_id, id),
    FOREIGN KEY (user_id, model, dimensions) REFERENCES embedders (user_id, model, dimensions)
) STRICT;
