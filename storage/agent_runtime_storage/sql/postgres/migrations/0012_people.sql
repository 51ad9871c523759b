-- What runs ask people, and which calls they have allowed for the rest of a thread.

-- name: create_questions
CREATE TABLE questions (
    user_id      text    COLLATE "C" NOT NULL,
    id           text    COLLATE "C" NOT NULL CHECK (id <> ''),
    thread_id    text    COLLATE "C" NOT NULL,
    run_id       text    COLLATE "C" NOT NULL,
    -- The exchange that asks, and which of its calls; NULL where it is the run itself.
    node_id      bigint  NOT NULL,
    position     bigint CHECK (position >= 0),
    kind         text    NOT NULL CHECK (kind IN (
        'single', 'multiple', 'text', 'approval', 'continue')),
    body         text    NOT NULL CHECK (json_typeof(body::json) = 'object'),
    -- One that is open counts as expired from `expires_at` on.
    status       text    NOT NULL CHECK (status IN ('open', 'answered', 'withdrawn')),
    answer       text    NOT NULL CHECK (json_typeof(answer::json) = 'object'),
    asked_at     double precision NOT NULL,
    expires_at   double precision NOT NULL,
    answered_at  double precision,
    PRIMARY KEY (user_id, id),
    CHECK ((status = 'answered') = (answered_at IS NOT NULL)),
    FOREIGN KEY (user_id, thread_id) REFERENCES threads (user_id, id),
    FOREIGN KEY (user_id, run_id) REFERENCES runs (user_id, id),
    FOREIGN KEY (user_id, thread_id, node_id) REFERENCES nodes (user_id, thread_id, id)
);

-- name: index_questions_by_run
CREATE INDEX questions_by_run ON questions (user_id, run_id, node_id, position);

-- name: index_questions_by_thread
CREATE INDEX questions_by_thread ON questions (user_id, thread_id, node_id);

-- name: index_questions_by_time
CREATE INDEX questions_by_time ON questions (user_id, asked_at);

-- name: create_approvals
CREATE TABLE approvals (
    user_id     text COLLATE "C" NOT NULL,
    thread_id   text COLLATE "C" NOT NULL,
    id          text COLLATE "C" NOT NULL CHECK (id <> ''),
    tool        text NOT NULL CHECK (tool <> ''),
    -- By argument, the pattern that its value has to match; none matches every call.
    arguments   text NOT NULL CHECK (json_typeof(arguments::json) = 'object'),
    created_at  double precision NOT NULL,
    PRIMARY KEY (user_id, thread_id, id),
    FOREIGN KEY (user_id, thread_id) REFERENCES threads (user_id, id)
);

-- name: guard_questions
SELECT agent_runtime.guard_table('questions');

-- name: guard_approvals
SELECT agent_runtime.guard_table('approvals');
