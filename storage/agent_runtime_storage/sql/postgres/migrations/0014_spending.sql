-- What an owner has spent on each day, what the root of a run tree keeps for itself, and how long
-- runs were at work.

-- name: create_spending
CREATE TABLE spending (
    user_id           text    COLLATE "C" NOT NULL,
    -- Days since the epoch, by UTC: the day on which it was booked.
    day               bigint  NOT NULL,
    settled_tokens    bigint  NOT NULL DEFAULT 0 CHECK (settled_tokens >= 0),
    settled_cost      bigint  NOT NULL DEFAULT 0 CHECK (settled_cost >= 0),
    unsettled_tokens  bigint  NOT NULL DEFAULT 0 CHECK (unsettled_tokens >= 0),
    unsettled_cost    bigint  NOT NULL DEFAULT 0 CHECK (unsettled_cost >= 0),
    PRIMARY KEY (user_id, day)
);

-- name: add_kept_tokens
ALTER TABLE runs ADD COLUMN kept_tokens bigint NOT NULL DEFAULT 0 CHECK (kept_tokens >= 0);

-- name: add_kept_cost
ALTER TABLE runs ADD COLUMN kept_cost bigint NOT NULL DEFAULT 0 CHECK (kept_cost >= 0);

-- name: add_worked_seconds
-- Of the executions that are over; the one under way began at `working_since`.
ALTER TABLE runs
ADD COLUMN worked_seconds double precision NOT NULL DEFAULT 0 CHECK (worked_seconds >= 0);

-- name: add_working_since
ALTER TABLE runs ADD COLUMN working_since double precision;

-- name: index_runs_at_work
CREATE INDEX runs_at_work ON runs (user_id) WHERE status = 'running';

-- name: guard_spending
SELECT agent_runtime.guard_table('spending');
