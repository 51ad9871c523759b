-- The log, its runs and what surrounds them.  Every key begins with the owner.
-- Time is in seconds since the epoch, money in nanodollars.
--
-- Only tables of small rows are WITHOUT ROWID: bodies in the key's tree would make it deep (the
-- last 20 of 100K nodes took 0.59 instead of 0.11 ms).

-- name: create_threads
CREATE TABLE threads (
    user_id          TEXT    NOT NULL CHECK (user_id <> ''),
    id               TEXT    NOT NULL CHECK (id <> ''),
    title            TEXT    NOT NULL,
    metadata         TEXT    NOT NULL CHECK (json_type(metadata) = 'object'),
    head             INTEGER,
    -- The counters from which ids are allocated: in the transaction that uses them, so that ids
    -- rise in commit order and without gaps.
    last_seq         INTEGER NOT NULL DEFAULT 0,
    last_activation  INTEGER NOT NULL DEFAULT 0,
    last_event       INTEGER NOT NULL DEFAULT 0,
    last_inbox       INTEGER NOT NULL DEFAULT 0,
    last_usage       INTEGER NOT NULL DEFAULT 0,
    active_run       TEXT,
    created_at       REAL    NOT NULL,
    updated_at       REAL    NOT NULL,
    PRIMARY KEY (user_id, id),
    FOREIGN KEY (user_id, id, head) REFERENCES nodes (user_id, thread_id, id),
    FOREIGN KEY (user_id, active_run) REFERENCES runs (user_id, id)
) STRICT, WITHOUT ROWID;

-- name: index_threads_by_update
CREATE INDEX threads_by_update ON threads (user_id, updated_at);

-- name: create_blobs
-- Bodies too large for their row, once for each distinct content of a thread.
CREATE TABLE blobs (
    user_id    TEXT    NOT NULL,
    thread_id  TEXT    NOT NULL,
    hash       BLOB    NOT NULL CHECK (length(hash) = 32),
    codec      TEXT    NOT NULL CHECK (codec IN ('raw', 'zstd')),
    data       BLOB    NOT NULL,
    PRIMARY KEY (user_id, thread_id, hash),
    FOREIGN KEY (user_id, thread_id) REFERENCES threads (user_id, id)
) STRICT;

-- name: create_runs
CREATE TABLE runs (
    user_id                TEXT    NOT NULL,
    id                     TEXT    NOT NULL CHECK (id <> ''),
    thread_id              TEXT    NOT NULL,
    parent_run_id          TEXT,
    root_run_id            TEXT    NOT NULL,
    agent                  TEXT    NOT NULL,
    status                 TEXT    NOT NULL CHECK (status IN (
        'queued', 'running', 'suspended', 'succeeded', 'failed', 'cancelled')),
    stop_reason            TEXT,
    detail                 TEXT    NOT NULL DEFAULT '',
    task_id                INTEGER,
    open_node              INTEGER,
    steps                  INTEGER NOT NULL DEFAULT 0 CHECK (steps >= 0),
    max_steps              INTEGER NOT NULL,
    cancel_requested       INTEGER NOT NULL DEFAULT 0 CHECK (cancel_requested IN (0, 1)),
    spec                   TEXT    NOT NULL CHECK (json_type(spec) = 'object'),
    output                 BLOB    NOT NULL DEFAULT x'',
    output_blob            BLOB,
    epoch                  INTEGER NOT NULL,
    lease_host             TEXT,
    lease_boot             TEXT,
    lease_pid              INTEGER,
    lease_started          TEXT,
    lease_until            REAL,
    budget_tokens          INTEGER,
    budget_cost            INTEGER,
    -- Of the whole tree, kept on its root.
    tree_reserved_tokens   INTEGER NOT NULL DEFAULT 0 CHECK (tree_reserved_tokens >= 0),
    tree_reserved_cost     INTEGER NOT NULL DEFAULT 0 CHECK (tree_reserved_cost >= 0),
    tree_settled_tokens    INTEGER NOT NULL DEFAULT 0 CHECK (tree_settled_tokens >= 0),
    tree_settled_cost      INTEGER NOT NULL DEFAULT 0 CHECK (tree_settled_cost >= 0),
    tree_unsettled_tokens  INTEGER NOT NULL DEFAULT 0 CHECK (tree_unsettled_tokens >= 0),
    tree_unsettled_cost    INTEGER NOT NULL DEFAULT 0 CHECK (tree_unsettled_cost >= 0),
    -- This run's part of what the tree has reserved, so that its death can be settled.
    own_reserved_tokens    INTEGER NOT NULL DEFAULT 0 CHECK (own_reserved_tokens >= 0),
    own_reserved_cost      INTEGER NOT NULL DEFAULT 0 CHECK (own_reserved_cost >= 0),
    created_at             REAL    NOT NULL,
    updated_at             REAL    NOT NULL,
    finished_at            REAL,
    PRIMARY KEY (user_id, id),
    CHECK ((parent_run_id IS NULL) = (root_run_id = id)),
    FOREIGN KEY (user_id, thread_id) REFERENCES threads (user_id, id),
    FOREIGN KEY (user_id, parent_run_id) REFERENCES runs (user_id, id),
    FOREIGN KEY (user_id, root_run_id) REFERENCES runs (user_id, id),
    FOREIGN KEY (user_id, thread_id, open_node) REFERENCES nodes (user_id, thread_id, id),
    FOREIGN KEY (user_id, thread_id, output_blob) REFERENCES blobs (user_id, thread_id, hash)
) STRICT;

-- name: index_runs_by_age
CREATE INDEX runs_by_age ON runs (user_id, created_at);

-- name: index_runs_by_thread
CREATE INDEX runs_by_thread ON runs (user_id, thread_id, created_at);

-- name: index_runs_by_root
CREATE INDEX runs_by_root ON runs (user_id, root_run_id, created_at);

-- name: index_runs_by_parent
CREATE INDEX runs_by_parent ON runs (user_id, parent_run_id, created_at)
    WHERE parent_run_id IS NOT NULL;

-- name: create_nodes
CREATE TABLE nodes (
    user_id        TEXT    NOT NULL,
    thread_id      TEXT    NOT NULL,
    id             INTEGER NOT NULL CHECK (id > 0),
    -- Smaller than its child's, so a chain of parents always ends.
    parent_id      INTEGER CHECK (parent_id > 0 AND parent_id < id),
    kind           TEXT    NOT NULL CHECK (kind IN ('message', 'exchange')),
    status         TEXT    NOT NULL CHECK (status IN ('open', 'closed')),
    role           TEXT    NOT NULL,
    run_id         TEXT,
    activation_id  INTEGER NOT NULL CHECK (activation_id >= 0),
    body           BLOB    NOT NULL,
    blob           BLOB    CHECK (blob IS NULL OR length(body) = 0),
    tokens         INTEGER NOT NULL CHECK (tokens >= 0),
    created_at     REAL    NOT NULL,
    PRIMARY KEY (user_id, thread_id, id),
    CHECK (status = 'closed' OR kind = 'exchange'),
    FOREIGN KEY (user_id, thread_id) REFERENCES threads (user_id, id),
    FOREIGN KEY (user_id, thread_id, parent_id) REFERENCES nodes (user_id, thread_id, id),
    FOREIGN KEY (user_id, run_id) REFERENCES runs (user_id, id),
    FOREIGN KEY (user_id, thread_id, blob) REFERENCES blobs (user_id, thread_id, hash)
) STRICT;

-- name: index_nodes_by_parent
CREATE INDEX nodes_by_parent ON nodes (user_id, thread_id, parent_id);

-- name: create_calls
CREATE TABLE calls (
    user_id    TEXT    NOT NULL,
    thread_id  TEXT    NOT NULL,
    node_id    INTEGER NOT NULL,
    position   INTEGER NOT NULL CHECK (position >= 0),
    tool       TEXT    NOT NULL,
    status     TEXT    NOT NULL CHECK (status IN ('pending', 'started', 'done')),
    outcome    TEXT    CHECK (outcome IN ('ok', 'error', 'refused', 'interrupted', 'cancelled')),
    body       BLOB    NOT NULL DEFAULT x'',
    blob       BLOB    CHECK (blob IS NULL OR length(body) = 0),
    shown      INTEGER CHECK (shown >= 0),
    tokens     INTEGER NOT NULL DEFAULT 0 CHECK (tokens >= 0),
    PRIMARY KEY (user_id, thread_id, node_id, position),
    CHECK ((status = 'done') = (outcome IS NOT NULL)),
    FOREIGN KEY (user_id, thread_id, node_id) REFERENCES nodes (user_id, thread_id, id),
    FOREIGN KEY (user_id, thread_id, blob) REFERENCES blobs (user_id, thread_id, hash)
) STRICT;

-- name: create_activations
CREATE TABLE activations (
    user_id      TEXT    NOT NULL,
    thread_id    TEXT    NOT NULL,
    id           INTEGER NOT NULL CHECK (id > 0),
    anchor       INTEGER,
    run_id       TEXT,
    cause        TEXT    NOT NULL,
    body         BLOB    NOT NULL,
    blob         BLOB    CHECK (blob IS NULL OR length(body) = 0),
    prefix_blob  BLOB    NOT NULL,
    created_at   REAL    NOT NULL,
    PRIMARY KEY (user_id, thread_id, id),
    FOREIGN KEY (user_id, thread_id) REFERENCES threads (user_id, id),
    FOREIGN KEY (user_id, thread_id, anchor) REFERENCES nodes (user_id, thread_id, id),
    FOREIGN KEY (user_id, run_id) REFERENCES runs (user_id, id),
    FOREIGN KEY (user_id, thread_id, blob) REFERENCES blobs (user_id, thread_id, hash),
    FOREIGN KEY (user_id, thread_id, prefix_blob) REFERENCES blobs (user_id, thread_id, hash)
) STRICT;

-- name: index_activations_by_anchor
CREATE INDEX activations_by_anchor ON activations (user_id, thread_id, anchor, id);

-- name: create_inbox
CREATE TABLE inbox (
    user_id     TEXT    NOT NULL,
    thread_id   TEXT    NOT NULL,
    id          INTEGER NOT NULL CHECK (id > 0),
    run_id      TEXT,
    kind        TEXT    NOT NULL,
    body        BLOB    NOT NULL,
    blob        BLOB    CHECK (blob IS NULL OR length(body) = 0),
    created_at  REAL    NOT NULL,
    PRIMARY KEY (user_id, thread_id, id),
    FOREIGN KEY (user_id, thread_id) REFERENCES threads (user_id, id),
    FOREIGN KEY (user_id, run_id) REFERENCES runs (user_id, id),
    FOREIGN KEY (user_id, thread_id, blob) REFERENCES blobs (user_id, thread_id, hash)
) STRICT;

-- name: create_events
CREATE TABLE events (
    user_id     TEXT    NOT NULL,
    thread_id   TEXT    NOT NULL,
    id          INTEGER NOT NULL CHECK (id > 0),
    run_id      TEXT,
    kind        TEXT    NOT NULL,
    node_id     INTEGER,
    data        TEXT    NOT NULL CHECK (json_type(data) = 'object'),
    created_at  REAL    NOT NULL,
    PRIMARY KEY (user_id, thread_id, id),
    FOREIGN KEY (user_id, thread_id) REFERENCES threads (user_id, id),
    FOREIGN KEY (user_id, run_id) REFERENCES runs (user_id, id),
    FOREIGN KEY (user_id, thread_id, node_id) REFERENCES nodes (user_id, thread_id, id)
) STRICT, WITHOUT ROWID;

-- name: create_usage
CREATE TABLE usage (
    user_id             TEXT    NOT NULL,
    thread_id           TEXT    NOT NULL,
    id                  INTEGER NOT NULL CHECK (id > 0),
    run_id              TEXT    NOT NULL,
    root_run_id         TEXT    NOT NULL,
    node_id             INTEGER,
    purpose             TEXT    NOT NULL,
    model               TEXT    NOT NULL,
    prompt_tokens       INTEGER NOT NULL CHECK (prompt_tokens >= 0),
    cached_tokens       INTEGER NOT NULL CHECK (cached_tokens >= 0),
    cache_write_tokens  INTEGER NOT NULL CHECK (cache_write_tokens >= 0),
    completion_tokens   INTEGER NOT NULL CHECK (completion_tokens >= 0),
    counted_tokens      INTEGER NOT NULL CHECK (counted_tokens >= 0),
    cost                INTEGER CHECK (cost >= 0),
    reported            INTEGER NOT NULL CHECK (reported IN (0, 1)),
    created_at          REAL    NOT NULL,
    PRIMARY KEY (user_id, thread_id, id),
    FOREIGN KEY (user_id, thread_id) REFERENCES threads (user_id, id),
    FOREIGN KEY (user_id, run_id) REFERENCES runs (user_id, id),
    FOREIGN KEY (user_id, root_run_id) REFERENCES runs (user_id, id),
    FOREIGN KEY (user_id, thread_id, node_id) REFERENCES nodes (user_id, thread_id, id)
) STRICT, WITHOUT ROWID;

-- name: index_usage_by_root
CREATE INDEX usage_by_root ON usage (user_id, root_run_id);

-- name: index_usage_by_run
CREATE INDEX usage_by_run ON usage (user_id, run_id);

-- name: index_usage_by_model
CREATE INDEX usage_by_model ON usage (user_id, model, created_at) WHERE reported = 1;

-- name: create_jobs
CREATE TABLE jobs (
    user_id      TEXT    NOT NULL,
    id           TEXT    NOT NULL,
    thread_id    TEXT    NOT NULL,
    kind         TEXT    NOT NULL,
    key          TEXT    NOT NULL,
    payload      BLOB    NOT NULL,
    blob         BLOB    CHECK (blob IS NULL OR length(payload) = 0),
    status       TEXT    NOT NULL CHECK (status IN ('ready', 'claimed', 'done', 'failed')),
    attempts     INTEGER NOT NULL DEFAULT 0,
    token        TEXT    NOT NULL DEFAULT '',
    -- When it may be claimed: from the start, after a retry's wait, or once a claim has expired.
    due_at       REAL    NOT NULL,
    detail       TEXT    NOT NULL DEFAULT '',
    created_at   REAL    NOT NULL,
    finished_at  REAL,
    PRIMARY KEY (user_id, id),
    UNIQUE (user_id, thread_id, kind, key),
    FOREIGN KEY (user_id, thread_id) REFERENCES threads (user_id, id),
    FOREIGN KEY (user_id, thread_id, blob) REFERENCES blobs (user_id, thread_id, hash)
) STRICT;

-- name: index_jobs_unfinished
CREATE INDEX jobs_unfinished ON jobs (user_id, kind, created_at, id)
    WHERE status IN ('ready', 'claimed');
