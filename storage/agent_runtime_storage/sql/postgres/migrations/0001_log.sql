-- The log, its runs and what surrounds them.  Every key begins with the owner.
-- Time is in seconds since the epoch, money in nanodollars, JSON is kept as the text that came.
--
-- Keys compare by bytes (COLLATE "C"): that is the order of SQLite, and no new version of the
-- system's collations can damage their indexes.

-- name: create_unix_seconds
-- now() stands still in a transaction, which may have waited for a lock.
CREATE FUNCTION agent_runtime.unix_seconds() RETURNS double precision
LANGUAGE sql VOLATILE PARALLEL SAFE
AS $$ SELECT extract(epoch FROM clock_timestamp())::double precision $$;

-- name: create_roles_usable
CREATE FUNCTION agent_runtime.roles_usable() RETURNS boolean
LANGUAGE sql STABLE
AS $$
    SELECT coalesce(
        pg_has_role(current_user, to_regrole('agent_runtime_app')::oid,
                    CASE WHEN current_setting('server_version_num')::bigint >= 160000
                         THEN 'SET' ELSE 'MEMBER' END)
        AND pg_has_role(current_user, to_regrole('agent_runtime_system')::oid, 'USAGE'),
        false)
$$;

-- name: create_guard_table
-- Row-level security for a table of the schema that has a column user_id: an owner's statements see
-- that owner's rows, the runtime's own work over all owners sees all.  Doing it again changes
-- nothing but who is told by which role, should the roles have come later.
CREATE FUNCTION agent_runtime.guard_table(named text) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    EXECUTE format('ALTER TABLE agent_runtime.%I ENABLE ROW LEVEL SECURITY', named);
    EXECUTE format('ALTER TABLE agent_runtime.%I FORCE ROW LEVEL SECURITY', named);
    EXECUTE format('DROP POLICY IF EXISTS of_owner ON agent_runtime.%I', named);
    EXECUTE format('DROP POLICY IF EXISTS of_system ON agent_runtime.%I', named);
    EXECUTE format(
        'CREATE POLICY of_owner ON agent_runtime.%I '
        'USING (user_id = current_setting(''agent_runtime.user_id'', true))', named);
    IF agent_runtime.roles_usable() THEN
        EXECUTE format(
            'CREATE POLICY of_system ON agent_runtime.%I TO agent_runtime_system '
            'USING (true)', named);
        EXECUTE format(
            'GRANT SELECT, INSERT, UPDATE, DELETE ON agent_runtime.%I '
            'TO agent_runtime_app, agent_runtime_system', named);
    ELSE
        EXECUTE format(
            'CREATE POLICY of_system ON agent_runtime.%I '
            'USING (current_setting(''agent_runtime.system'', true) = ''on'')', named);
    END IF;
END
$$;

-- name: create_guard_all
-- Every guarded table anew, and what the roles need of the schema itself.
CREATE FUNCTION agent_runtime.guard_all() RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    IF agent_runtime.roles_usable() THEN
        GRANT USAGE ON SCHEMA agent_runtime TO agent_runtime_app, agent_runtime_system;
        GRANT SELECT ON agent_runtime.schema_migrations TO agent_runtime_system;
    END IF;
    PERFORM agent_runtime.guard_table(c.relname)
    FROM pg_class AS c
    WHERE c.relnamespace = 'agent_runtime'::regnamespace AND c.relrowsecurity
    ORDER BY c.relname;
END
$$;

-- name: create_threads
CREATE TABLE threads (
    user_id          text    COLLATE "C" NOT NULL CHECK (user_id <> ''),
    id               text    COLLATE "C" NOT NULL CHECK (id <> ''),
    title            text    NOT NULL,
    metadata         text    NOT NULL CHECK (json_typeof(metadata::json) = 'object'),
    head             bigint,
    -- The counters from which ids are allocated: in the transaction that uses them, so that ids
    -- rise in commit order and without gaps.
    last_seq         bigint  NOT NULL DEFAULT 0,
    last_activation  bigint  NOT NULL DEFAULT 0,
    last_event       bigint  NOT NULL DEFAULT 0,
    last_inbox       bigint  NOT NULL DEFAULT 0,
    last_usage       bigint  NOT NULL DEFAULT 0,
    active_run       text    COLLATE "C",
    created_at       double precision NOT NULL,
    updated_at       double precision NOT NULL,
    PRIMARY KEY (user_id, id)
) WITH (fillfactor = 70);

-- name: index_threads_by_update
CREATE INDEX threads_by_update ON threads (user_id, updated_at);

-- name: create_blobs
-- Bodies too large for their row, once for each distinct content of a thread.
CREATE TABLE blobs (
    user_id    text   COLLATE "C" NOT NULL,
    thread_id  text   COLLATE "C" NOT NULL,
    hash       bytea  NOT NULL CHECK (length(hash) = 32),
    codec      text   NOT NULL CHECK (codec IN ('raw', 'zstd')),
    data       bytea  NOT NULL,
    PRIMARY KEY (user_id, thread_id, hash),
    FOREIGN KEY (user_id, thread_id) REFERENCES threads (user_id, id)
);

-- name: keep_blobs_as_they_are
-- They are compressed already, or cannot be.
ALTER TABLE blobs ALTER COLUMN data SET STORAGE EXTERNAL;

-- name: create_runs
CREATE TABLE runs (
    user_id                text    COLLATE "C" NOT NULL,
    id                     text    COLLATE "C" NOT NULL CHECK (id <> ''),
    thread_id              text    COLLATE "C" NOT NULL,
    parent_run_id          text    COLLATE "C",
    root_run_id            text    COLLATE "C" NOT NULL,
    agent                  text    NOT NULL,
    status                 text    NOT NULL CHECK (status IN (
        'queued', 'running', 'suspended', 'succeeded', 'failed', 'cancelled')),
    stop_reason            text,
    detail                 text    NOT NULL DEFAULT '',
    task_id                bigint,
    open_node              bigint,
    steps                  bigint  NOT NULL DEFAULT 0 CHECK (steps >= 0),
    max_steps              bigint  NOT NULL,
    cancel_requested       bigint  NOT NULL DEFAULT 0 CHECK (cancel_requested IN (0, 1)),
    spec                   text    NOT NULL CHECK (json_typeof(spec::json) = 'object'),
    output                 bytea   NOT NULL DEFAULT ''::bytea,
    output_blob            bytea,
    epoch                  bigint  NOT NULL,
    lease_host             text,
    lease_boot             text,
    lease_pid              bigint,
    lease_started          text,
    lease_until            double precision,
    budget_tokens          bigint,
    budget_cost            bigint,
    -- Of the whole tree, kept on its root.
    tree_reserved_tokens   bigint  NOT NULL DEFAULT 0 CHECK (tree_reserved_tokens >= 0),
    tree_reserved_cost     bigint  NOT NULL DEFAULT 0 CHECK (tree_reserved_cost >= 0),
    tree_settled_tokens    bigint  NOT NULL DEFAULT 0 CHECK (tree_settled_tokens >= 0),
    tree_settled_cost      bigint  NOT NULL DEFAULT 0 CHECK (tree_settled_cost >= 0),
    tree_unsettled_tokens  bigint  NOT NULL DEFAULT 0 CHECK (tree_unsettled_tokens >= 0),
    tree_unsettled_cost    bigint  NOT NULL DEFAULT 0 CHECK (tree_unsettled_cost >= 0),
    -- This run's part of what the tree has reserved, so that its death can be settled.
    own_reserved_tokens    bigint  NOT NULL DEFAULT 0 CHECK (own_reserved_tokens >= 0),
    own_reserved_cost      bigint  NOT NULL DEFAULT 0 CHECK (own_reserved_cost >= 0),
    created_at             double precision NOT NULL,
    updated_at             double precision NOT NULL,
    finished_at            double precision,
    PRIMARY KEY (user_id, id),
    CHECK ((parent_run_id IS NULL) = (root_run_id = id)),
    FOREIGN KEY (user_id, thread_id) REFERENCES threads (user_id, id),
    FOREIGN KEY (user_id, parent_run_id) REFERENCES runs (user_id, id),
    FOREIGN KEY (user_id, root_run_id) REFERENCES runs (user_id, id),
    FOREIGN KEY (user_id, thread_id, output_blob) REFERENCES blobs (user_id, thread_id, hash)
) WITH (fillfactor = 70);

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
    user_id        text    COLLATE "C" NOT NULL,
    thread_id      text    COLLATE "C" NOT NULL,
    id             bigint  NOT NULL CHECK (id > 0),
    -- Smaller than its child's, so a chain of parents always ends.
    parent_id      bigint  CHECK (parent_id > 0 AND parent_id < id),
    kind           text    NOT NULL CHECK (kind IN ('message', 'exchange')),
    status         text    NOT NULL CHECK (status IN ('open', 'closed')),
    role           text    NOT NULL,
    run_id         text    COLLATE "C",
    activation_id  bigint  NOT NULL CHECK (activation_id >= 0),
    body           bytea   NOT NULL,
    blob           bytea   CHECK (blob IS NULL OR length(body) = 0),
    tokens         bigint  NOT NULL CHECK (tokens >= 0),
    created_at     double precision NOT NULL,
    PRIMARY KEY (user_id, thread_id, id),
    CHECK (status = 'closed' OR kind = 'exchange'),
    FOREIGN KEY (user_id, thread_id) REFERENCES threads (user_id, id),
    FOREIGN KEY (user_id, thread_id, parent_id) REFERENCES nodes (user_id, thread_id, id),
    FOREIGN KEY (user_id, run_id) REFERENCES runs (user_id, id),
    FOREIGN KEY (user_id, thread_id, blob) REFERENCES blobs (user_id, thread_id, hash)
);

-- name: index_nodes_by_parent
CREATE INDEX nodes_by_parent ON nodes (user_id, thread_id, parent_id);

-- name: threads_refer_to_nodes_and_runs
ALTER TABLE threads
    ADD FOREIGN KEY (user_id, id, head) REFERENCES nodes (user_id, thread_id, id),
    ADD FOREIGN KEY (user_id, active_run) REFERENCES runs (user_id, id);

-- name: runs_refer_to_nodes
ALTER TABLE runs
    ADD FOREIGN KEY (user_id, thread_id, open_node) REFERENCES nodes (user_id, thread_id, id);

-- name: create_calls
CREATE TABLE calls (
    user_id    text    COLLATE "C" NOT NULL,
    thread_id  text    COLLATE "C" NOT NULL,
    node_id    bigint  NOT NULL,
    position   bigint  NOT NULL CHECK (position >= 0),
    tool       text    NOT NULL,
    status     text    NOT NULL CHECK (status IN ('pending', 'started', 'done')),
    outcome    text    CHECK (outcome IN ('ok', 'error', 'refused', 'interrupted', 'cancelled')),
    body       bytea   NOT NULL DEFAULT ''::bytea,
    blob       bytea   CHECK (blob IS NULL OR length(body) = 0),
    shown      bigint  CHECK (shown >= 0),
    tokens     bigint  NOT NULL DEFAULT 0 CHECK (tokens >= 0),
    PRIMARY KEY (user_id, thread_id, node_id, position),
    CHECK ((status = 'done') = (outcome IS NOT NULL)),
    FOREIGN KEY (user_id, thread_id, node_id) REFERENCES nodes (user_id, thread_id, id),
    FOREIGN KEY (user_id, thread_id, blob) REFERENCES blobs (user_id, thread_id, hash)
);

-- name: create_activations
CREATE TABLE activations (
    user_id      text    COLLATE "C" NOT NULL,
    thread_id    text    COLLATE "C" NOT NULL,
    id           bigint  NOT NULL CHECK (id > 0),
    anchor       bigint,
    run_id       text    COLLATE "C",
    cause        text    NOT NULL,
    body         bytea   NOT NULL,
    blob         bytea   CHECK (blob IS NULL OR length(body) = 0),
    prefix_blob  bytea   NOT NULL,
    created_at   double precision NOT NULL,
    PRIMARY KEY (user_id, thread_id, id),
    FOREIGN KEY (user_id, thread_id) REFERENCES threads (user_id, id),
    FOREIGN KEY (user_id, thread_id, anchor) REFERENCES nodes (user_id, thread_id, id),
    FOREIGN KEY (user_id, run_id) REFERENCES runs (user_id, id),
    FOREIGN KEY (user_id, thread_id, blob) REFERENCES blobs (user_id, thread_id, hash),
    FOREIGN KEY (user_id, thread_id, prefix_blob) REFERENCES blobs (user_id, thread_id, hash)
);

-- name: index_activations_by_anchor
CREATE INDEX activations_by_anchor ON activations (user_id, thread_id, anchor, id);

-- name: create_inbox
CREATE TABLE inbox (
    user_id     text    COLLATE "C" NOT NULL,
    thread_id   text    COLLATE "C" NOT NULL,
    id          bigint  NOT NULL CHECK (id > 0),
    run_id      text    COLLATE "C",
    kind        text    NOT NULL,
    body        bytea   NOT NULL,
    blob        bytea   CHECK (blob IS NULL OR length(body) = 0),
    created_at  double precision NOT NULL,
    PRIMARY KEY (user_id, thread_id, id),
    FOREIGN KEY (user_id, thread_id) REFERENCES threads (user_id, id),
    FOREIGN KEY (user_id, run_id) REFERENCES runs (user_id, id),
    FOREIGN KEY (user_id, thread_id, blob) REFERENCES blobs (user_id, thread_id, hash)
);

-- name: create_events
CREATE TABLE events (
    user_id     text    COLLATE "C" NOT NULL,
    thread_id   text    COLLATE "C" NOT NULL,
    id          bigint  NOT NULL CHECK (id > 0),
    run_id      text    COLLATE "C",
    kind        text    NOT NULL,
    node_id     bigint,
    data        text    NOT NULL CHECK (json_typeof(data::json) = 'object'),
    created_at  double precision NOT NULL,
    PRIMARY KEY (user_id, thread_id, id),
    FOREIGN KEY (user_id, thread_id) REFERENCES threads (user_id, id),
    FOREIGN KEY (user_id, run_id) REFERENCES runs (user_id, id),
    FOREIGN KEY (user_id, thread_id, node_id) REFERENCES nodes (user_id, thread_id, id)
);

-- name: create_usage
CREATE TABLE usage (
    user_id             text    COLLATE "C" NOT NULL,
    thread_id           text    COLLATE "C" NOT NULL,
    id                  bigint  NOT NULL CHECK (id > 0),
    run_id              text    COLLATE "C" NOT NULL,
    root_run_id         text    COLLATE "C" NOT NULL,
    node_id             bigint,
    purpose             text    NOT NULL,
    model               text    NOT NULL,
    prompt_tokens       bigint  NOT NULL CHECK (prompt_tokens >= 0),
    cached_tokens       bigint  NOT NULL CHECK (cached_tokens >= 0),
    cache_write_tokens  bigint  NOT NULL CHECK (cache_write_tokens >= 0),
    completion_tokens   bigint  NOT NULL CHECK (completion_tokens >= 0),
    counted_tokens      bigint  NOT NULL CHECK (counted_tokens >= 0),
    cost                bigint  CHECK (cost >= 0),
    reported            bigint  NOT NULL CHECK (reported IN (0, 1)),
    created_at          double precision NOT NULL,
    PRIMARY KEY (user_id, thread_id, id),
    FOREIGN KEY (user_id, thread_id) REFERENCES threads (user_id, id),
    FOREIGN KEY (user_id, run_id) REFERENCES runs (user_id, id),
    FOREIGN KEY (user_id, root_run_id) REFERENCES runs (user_id, id),
    FOREIGN KEY (user_id, thread_id, node_id) REFERENCES nodes (user_id, thread_id, id)
);

-- name: index_usage_by_root
CREATE INDEX usage_by_root ON usage (user_id, root_run_id);

-- name: index_usage_by_run
CREATE INDEX usage_by_run ON usage (user_id, run_id);

-- name: index_usage_by_model
CREATE INDEX usage_by_model ON usage (user_id, model, created_at) WHERE reported = 1;

-- name: create_jobs
CREATE TABLE jobs (
    user_id      text    COLLATE "C" NOT NULL,
    id           text    COLLATE "C" NOT NULL,
    thread_id    text    COLLATE "C" NOT NULL,
    kind         text    NOT NULL,
    key          text    COLLATE "C" NOT NULL,
    payload      bytea   NOT NULL,
    blob         bytea   CHECK (blob IS NULL OR length(payload) = 0),
    status       text    NOT NULL CHECK (status IN ('ready', 'claimed', 'done', 'failed')),
    attempts     bigint  NOT NULL DEFAULT 0,
    token        text    NOT NULL DEFAULT '',
    -- When it may be claimed: from the start, after a retry's wait, or once a claim has expired.
    due_at       double precision NOT NULL,
    detail       text    NOT NULL DEFAULT '',
    created_at   double precision NOT NULL,
    finished_at  double precision,
    PRIMARY KEY (user_id, id),
    UNIQUE (user_id, thread_id, kind, key),
    FOREIGN KEY (user_id, thread_id) REFERENCES threads (user_id, id),
    FOREIGN KEY (user_id, thread_id, blob) REFERENCES blobs (user_id, thread_id, hash)
);

-- name: index_jobs_unfinished
CREATE INDEX jobs_unfinished ON jobs (user_id, kind, created_at, id)
    WHERE status IN ('ready', 'claimed');

-- name: guard_tables
SELECT agent_runtime.guard_table(name)
FROM unnest(ARRAY['threads', 'blobs', 'runs', 'nodes', 'calls', 'activations', 'inbox', 'events',
                  'usage', 'jobs']) AS name;

-- name: guard_schema
SELECT agent_runtime.guard_all();
