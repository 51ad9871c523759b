-- Questions about calls whose end was not recorded, and the agent that an approval was given to.

-- name: create_new_questions
-- SQLite cannot change a CHECK, so the table is built again.
CREATE TABLE new_questions (
    user_id      TEXT    NOT NULL,
    id           TEXT    NOT NULL CHECK (id <> ''),
    thread_id    TEXT    NOT NULL,
    run_id       TEXT    NOT NULL,
    -- The exchange that asks, and which of its calls; NULL where it is the run itself.
    node_id      INTEGER NOT NULL,
    position     INTEGER CHECK (position >= 0),
    kind         TEXT    NOT NULL CHECK (kind IN (
        'single', 'multiple', 'text', 'approval', 'continue', 'interrupted')),
    body         TEXT    NOT NULL CHECK (json_type(body) = 'object'),
    -- One that is open counts as expired from `expires_at` on.
    status       TEXT    NOT NULL CHECK (status IN ('open', 'answered', 'withdrawn')),
    answer       TEXT    NOT NULL CHECK (json_type(answer) = 'object'),
    asked_at     REAL    NOT NULL,
    expires_at   REAL    NOT NULL,
    answered_at  REAL,
    PRIMARY KEY (user_id, id),
    CHECK ((status = 'answered') = (answered_at IS NOT NULL)),
    FOREIGN KEY (user_id, thread_id) REFERENCES threads (user_id, id),
    FOREIGN KEY (user_id, run_id) REFERENCES runs (user_id, id),
    FOREIGN KEY (user_id, thread_id, node_id) REFERENCES nodes (user_id, thread_id, id)
) STRICT;

-- name: fill_new_questions
INSERT INTO new_questions
SELECT user_id, id, thread_id, run_id, node_id, position, kind, body, status, answer, asked_at,
       expires_at, answered_at
FROM questions;

-- name: drop_questions
DROP TABLE questions;

-- name: rename_questions
ALTER TABLE new_questions RENAME TO questions;

-- name: index_questions_by_run
CREATE INDEX questions_by_run ON questions (user_id, run_id, node_id, position);

-- name: index_questions_by_thread
CREATE INDEX questions_by_thread ON questions (user_id, thread_id, node_id);

-- name: index_questions_by_time
CREATE INDEX questions_by_time ON questions (user_id, asked_at);

-- name: add_agent
ALTER TABLE approvals ADD COLUMN agent TEXT NOT NULL DEFAULT '';
