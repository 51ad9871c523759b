-- Observations: what stands for an interval of a thread's nodes once they have left the prompt.

-- name: create_observations
CREATE TABLE observations (
    user_id      text    COLLATE "C" NOT NULL,
    thread_id    text    COLLATE "C" NOT NULL,
    id           bigint  NOT NULL CHECK (id > 0),
    level        bigint  NOT NULL CHECK (level >= 0),
    -- The node before the first, the first and the last node that it stands for.
    parent_id    bigint,
    first_id     bigint  NOT NULL,
    last_id      bigint  NOT NULL CHECK (last_id >= first_id),
    -- The observations that it replaces, as a JSON list of ids.
    parts        text    NOT NULL CHECK (json_typeof(parts::json) = 'array'),
    provisional  bigint  NOT NULL CHECK (provisional IN (0, 1)),
    run_id       text    COLLATE "C",
    body         bytea   NOT NULL,
    blob         bytea    CHECK (blob IS NULL OR length(body) = 0),
    tokens       bigint  NOT NULL CHECK (tokens >= 0),
    created_at   double precision NOT NULL,
    PRIMARY KEY (user_id, thread_id, id),
    CHECK ((level = 0) = (parts = '[]')),
    FOREIGN KEY (user_id, thread_id) REFERENCES threads (user_id, id)
);

-- name: index_observations_by_last
CREATE INDEX observations_by_last ON observations (user_id, thread_id, last_id);

-- name: guard_observations
SELECT agent_runtime.guard_table('observations');
