-- Plans: immutable versions, each of the exchange whose call made it, so that a branch has its own.

-- name: create_plans
CREATE TABLE plans (
    user_id     TEXT    NOT NULL,
    thread_id   TEXT    NOT NULL,
    id          INTEGER NOT NULL CHECK (id > 0),
    node_id     INTEGER NOT NULL,
    call_id     TEXT    NOT NULL,
    run_id      TEXT    NOT NULL,
    body        BLOB    NOT NULL,
    blob        BLOB    CHECK (blob IS NULL OR length(body) = 0),
    created_at  REAL    NOT NULL,
    PRIMARY KEY (user_id, thread_id, id),
    FOREIGN KEY (user_id, thread_id) REFERENCES threads (user_id, id),
    FOREIGN KEY (user_id, thread_id, node_id) REFERENCES nodes (user_id, thread_id, id),
    FOREIGN KEY (user_id, run_id) REFERENCES runs (user_id, id),
    FOREIGN KEY (user_id, thread_id, blob) REFERENCES blobs (user_id, thread_id, hash)
) STRICT;

-- name: index_plans_by_node
CREATE INDEX plans_by_node ON plans (user_id, thread_id, node_id, id);
