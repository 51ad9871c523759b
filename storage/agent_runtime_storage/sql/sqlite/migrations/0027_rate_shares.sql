-- What the processes of a deployment know of rate limits that they share.

-- name: create_rate_shares
CREATE TABLE rate_shares (
    -- Of no owner: only the runtime's own work sees the rows.
    user_id     TEXT NOT NULL DEFAULT '' CHECK (user_id = ''),
    -- Model, host and key, as a digest.
    place       TEXT NOT NULL CHECK (place <> ''),
    process     TEXT NOT NULL CHECK (process <> ''),
    renewed_at  REAL NOT NULL,
    -- What the process has heard and may still send, as JSON.
    figures     TEXT NOT NULL,
    PRIMARY KEY (place, process)
) STRICT;

-- name: index_rate_shares_by_process
CREATE INDEX rate_shares_by_process ON rate_shares (process);
