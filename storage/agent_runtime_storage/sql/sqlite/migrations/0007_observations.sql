-- Observations: what stands for an interval of a thread's nodes once they have left the prompt.

-- name: create_observations
CREATE TABLE observations (
    user_id      TEXT    NOT NULL,
    thread_id    TEXT    NOT NULL,
    id           INTEGER NOT NULL CHECK (id > 0),
    level        INTEGER NOT NULL CHECK (level >= 0),
    -- The node before the first, the first and the last node that it stands for.
    parent_id    INTEGER,
    first_id     INTEGER NOT NULL,
    last_id      INTEGER NOT NULL CHECK (last_id >= first_id),
    -- The observations that it replaces, as a JSON list of ids.
    parts        TEXT    NOT NULL CHECK (json_type(parts) = 'array'),
    provisional  INTEGER NOT NULL CHECK (provisional IN (0, 1)),
    run_id       TEXT,
    body         BLOB    NOT NULL,
    blob         BLOB    CHECK (blob IS NULL OR length(body) = 0),
    tokens       INTEGER NOT NULL CHECK (tokens >= 0),
    created_at   REAL    NOT NULL,
    PRIMARY KEY (user_id, thread_id, id),
    CHECK ((level = 0) = (parts = '[]')),
    FOREIGN KEY (user_id, thread_id) REFERENCES threads (user_id, id),
    FOREIGN KEY (user_id, thread_id, parent_id) REFERENCES nodes (user_id, thread_id, id),
    FOREIGN KEY (user_id, thread_id, first_id) REFERENCES nodes (user_id, thread_id, id),
    FOREIGN KEY (user_id, thread_id, last_id) REFERENCES nodes (user_id, thread_id, id),
    FOREIGN KEY (user_id, run_id) REFERENCES runs (user_id, id),
    FOREIGN KEY (user_id, thread_id, blob) REFERENCES blobs (user_id, thread_id, hash)
) STRICT;

-- name: index_observations_by_last
CREATE INDEX observations_by_last ON observations (user_id, thread_id, last_id);
