-- Archived threads: their content is in the object store, and a row tells where.

-- name: create_archives
CREATE TABLE archives (
    user_id       TEXT    NOT NULL CHECK (user_id <> ''),
    thread_id     TEXT    NOT NULL CHECK (thread_id <> ''),
    title         TEXT    NOT NULL,
    created_at    REAL    NOT NULL,
    updated_at    REAL    NOT NULL,
    archived_at   REAL    NOT NULL,
    -- The folder of its parts, and the SHA-256 of each, one after the other.
    place         TEXT    NOT NULL CHECK (place <> ''),
    digests       BLOB    NOT NULL CHECK (length(digests) > 0 AND length(digests) % 32 = 0),
    threads       INTEGER NOT NULL CHECK (threads > 0),
    records       INTEGER NOT NULL CHECK (records > 0),
    bytes         INTEGER NOT NULL CHECK (bytes > 0),
    stored_bytes  INTEGER NOT NULL CHECK (stored_bytes > 0),
    PRIMARY KEY (user_id, thread_id)
) STRICT;

-- name: index_archives_by_time
CREATE INDEX archives_by_time ON archives (user_id, archived_at, thread_id);

-- name: index_archives_by_place
CREATE UNIQUE INDEX archives_by_place ON archives (place);
