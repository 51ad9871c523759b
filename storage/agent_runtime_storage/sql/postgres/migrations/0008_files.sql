-- Files that messages refer to by their ids; their content is a blob.

-- name: create_files
-- An id is unique in its thread only: a copy of the thread under another id keeps it.
CREATE TABLE files (
    user_id     text    COLLATE "C" NOT NULL,
    thread_id   text    COLLATE "C" NOT NULL,
    id          text    COLLATE "C" NOT NULL CHECK (id <> ''),
    kind        text    NOT NULL CHECK (kind IN (
        'image', 'audio', 'video', 'document', 'custom')),
    origin      text    NOT NULL CHECK (origin IN ('upload', 'tool')),
    name        text    NOT NULL,
    media_type  text    NOT NULL,
    bytes       bigint  NOT NULL CHECK (bytes >= 0),
    blob        bytea   NOT NULL,
    created_at  double precision NOT NULL,
    PRIMARY KEY (user_id, thread_id, id),
    FOREIGN KEY (user_id, thread_id) REFERENCES threads (user_id, id),
    FOREIGN KEY (user_id, thread_id, blob) REFERENCES blobs (user_id, thread_id, hash)
);

-- name: index_files_by_id
CREATE INDEX files_by_id ON files (user_id, id);

-- name: guard_files
SELECT agent_runtime.guard_table('files');
