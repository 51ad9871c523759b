-- Plans: immutable versions, each of the exchange whose call made it, so that a branch has its own.

-- name: create_plans
CREATE TABLE plans (
    user_id     text    COLLATE "C" NOT NULL,
    thread_id   text    COLLATE "C" NOT NULL,
    id          bigint  NOT NULL CHECK (id > 0),
    node_id     bigint  NOT NULL,
    call_id     text    NOT NULL,
    run_id      text    COLLATE "C" NOT NULL,
    body        bytea   NOT NULL,
    blob        bytea   CHECK (blob IS NULL OR length(body) = 0),
    created_at  double precision NOT NULL,
    PRIMARY KEY (user_id, thread_id, id),
    FOREIGN KEY (user_id, thread_id) REFERENCES threads (user_id, id),
    FOREIGN KEY (user_id, thread_id, node_id) REFERENCES nodes (user_id, thread_id, id),
    FOREIGN KEY (user_id, run_id) REFERENCES runs (user_id, id),
    FOREIGN KEY (user_id, thread_id, blob) REFERENCES blobs (user_id, thread_id, hash)
);

-- name: index_plans_by_node
CREATE INDEX plans_by_node ON plans (user_id, thread_id, node_id, id);

-- name: guard_plans
SELECT agent_runtime.guard_table('plans');
