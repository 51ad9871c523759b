-- What the processes of a deployment know of rate limits that they share.

-- name: create_rate_shares
CREATE TABLE rate_shares (
    -- Of no owner: only the runtime's own work sees the rows.
    user_id     text COLLATE "C" NOT NULL DEFAULT '' CHECK (user_id = ''),
    -- Model, host and key, as a digest.
    place       text COLLATE "C" NOT NULL CHECK (place <> ''),
    process     text COLLATE "C" NOT NULL CHECK (process <> ''),
    renewed_at  double precision NOT NULL,
    -- What the process has heard and may still send, as JSON.
    figures     text NOT NULL,
    PRIMARY KEY (place, process)
) WITH (fillfactor = 50);

-- name: index_rate_shares_by_process
CREATE INDEX rate_shares_by_process ON rate_shares (process);

-- name: guard_tables
SELECT agent_runtime.guard_table('rate_shares');
