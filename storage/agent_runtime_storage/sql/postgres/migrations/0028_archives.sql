-- Archived threads: their content is in the object store, and a row tells where.

-- name: create_archives
CREATE TABLE archives (
    user_id       text   COLLATE "C" NOT NULL CHECK (user_id <> ''),
    thread_id     text   COLLATE "C" NOT NULL CHECK (thread_id <> ''),
    title         text   NOT NULL,
    created_at    double precision NOT NULL,
    updated_at    double precision NOT NULL,
    archived_at   double precision NOT NULL,
    -- The folder of its parts, and the SHA-256 of each, one after the other.
    place         text   COLLATE "C" NOT NULL CHECK (place <> ''),
    digests       bytea  NOT NULL CHECK (length(digests) > 0 AND length(digests) % 32 = 0),
    threads       bigint NOT NULL CHECK (threads > 0),
    records       bigint NOT NULL CHECK (records > 0),
    bytes         bigint NOT NULL CHECK (bytes > 0),
    stored_bytes  bigint NOT NULL CHECK (stored_bytes > 0),
    PRIMARY KEY (user_id, thread_id)
);

-- name: index_archives_by_time
CREATE INDEX archives_by_time ON archives (user_id, archived_at, thread_id);

-- name: index_archives_by_place
CREATE UNIQUE INDEX archives_by_place ON archives (place);

-- name: guard_tables
SELECT agent_runtime.guard_table('archives');
