-- The queue: what a worker has to know of each run that waits for one, or works at one.

-- name: create_queue
CREATE TABLE queue (
    user_id      text COLLATE "C" NOT NULL CHECK (user_id <> ''),
    run_id       text COLLATE "C" NOT NULL,
    thread_id    text COLLATE "C" NOT NULL,
    program      text NOT NULL,
    agent        text NOT NULL,
    version      text NOT NULL,
    model        text NOT NULL,
    state        text NOT NULL CHECK (state IN (
        'delayed', 'waiting', 'behind', 'working', 'parked', 'dead')),
    -- Runs of one share follow one another; the shares take turns.
    share        text NOT NULL,
    tag          double precision NOT NULL,
    due_at       double precision,
    enqueued_at  double precision NOT NULL,
    -- Since the tree's last step: how often a worker's lease expired.
    takeovers    bigint NOT NULL DEFAULT 0,
    steps_seen   bigint NOT NULL DEFAULT 0,
    cause        text NOT NULL DEFAULT '',
    claim        text NOT NULL DEFAULT '',
    -- The user's message; it enters the log when the run begins.
    task         text,
    PRIMARY KEY (user_id, run_id),
    FOREIGN KEY (user_id, run_id) REFERENCES runs (user_id, id)
) WITH (fillfactor = 70);

-- name: index_queue_waiting
CREATE INDEX queue_waiting ON queue (tag, enqueued_at) WHERE state = 'waiting';

-- name: index_queue_due
CREATE INDEX queue_due ON queue (due_at) WHERE state IN ('delayed', 'parked');

-- name: index_queue_working
CREATE INDEX queue_working ON queue (claim) WHERE state = 'working';

-- name: index_queue_of_thread
CREATE INDEX queue_of_thread ON queue (user_id, thread_id);

-- name: guard_tables
SELECT agent_runtime.guard_table('queue');
