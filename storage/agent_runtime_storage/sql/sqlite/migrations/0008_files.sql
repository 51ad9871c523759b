-- Files that messages refer to by their ids; their content is a blob.

-- name: create_files
-- An id is unique in its thread only: a copy of the thread under another id keeps it.
CREATE TABLE files (
    user_id     TEXT    NOT NULL,
    thread_id   TEXT    NOT NULL,
    id          TEXT    NOT NULL CHECK (id <> ''),
    kind        TEXT    NOT NULL CHECK (kind IN (
        'image', 'audio', 'video', 'document', 'custom')),
    origin      TEXT    NOT NULL CHECK (origin IN ('upload', 'tool')),
    name        TEXT    NOT NULL,
    media_type  TEXT    NOT NULL,
    bytes       INTEGER NOT NULL CHECK (bytes >= 0),
    blob        BLOB    NOT NULL,
    created_at  REAL    NOT NULL,
    PRIMARY KEY (user_id, thread_id, id),
    FOREIGN KEY (user_id, thread_id) REFERENCES threads (user_id, id),
    FOREIGN KEY (user_id, thread_id, blob) REFERENCES blobs (user_id, thread_id, hash)
) STRICT;

-- name: index_files_by_id
CREATE INDEX files_by_id ON files (user_id, id);
