-- The queue: what a worker has to know of each run that waits for one, or works at one.

-- name: create_queue
CREATE TABLE queue (
    user_id      TEXT NOT NULL CHECK (user_id <> ''),
    run_id       TEXT NOT NULL,
    thread_id    TEXT NOT NULL,
    program      TEXT NOT NULL,
    agent        TEXT NOT NULL,
    version      TEXT NOT NULL,
    model        TEXT NOT NULL,
    state        TEXT NOT NULL CHECK (state IN (
        'delayed', 'waiting', 'behind', 'working', 'parked', 'dead')),
    -- Runs of one share follow one another; the shares take turns.
    share        TEXT NOT NULL,
    tag          REAL NOT NULL,
    due_at       REAL,
    enqueued_at  REAL NOT NULL,
    -- Since the tree's last step: how often a worker's lease expired.
    takeovers    INTEGER NOT NULL DEFAULT 0,
    steps_seen   INTEGER NOT NULL DEFAULT 0,
    cause        TEXT NOT NULL DEFAULT '',
    claim        TEXT NOT NULL DEFAULT '',
    -- The user's message; it enters the log when the run begins.
    task         TEXT,
    PRIMARY KEY (user_id, run_id),
    FOREIGN KEY (user_id, run_id) REFERENCES runs (user_id, id)
) STRICT;

-- name: index_queue_waiting
CREATE INDEX queue_waiting ON queue (tag, enqueued_at) WHERE state = 'waiting';

-- name: index_queue_due
CREATE INDEX queue_due ON queue (due_at) WHERE state IN ('delayed', 'parked');

-- name: index_queue_working
CREATE INDEX queue_working ON queue (claim) WHERE state = 'working';

-- name: index_queue_of_thread
CREATE INDEX queue_of_thread ON queue (user_id, thread_id);
