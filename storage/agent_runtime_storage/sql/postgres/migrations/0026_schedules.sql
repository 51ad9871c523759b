-- Runs that begin by the clock, and the tokens of workers that run on Procrastinate.

-- name: create_schedules
CREATE TABLE schedules (
    user_id     text COLLATE "C" NOT NULL CHECK (user_id <> ''),
    id          text COLLATE "C" NOT NULL CHECK (id <> ''),
    -- Five fields of cron, by the clock of a time zone.
    cron        text NOT NULL,
    zone        text NOT NULL,
    missed      text NOT NULL CHECK (missed IN ('skip', 'once', 'all')),
    paused      bigint NOT NULL DEFAULT 0 CHECK (paused IN (0, 1)),
    next_at     double precision NOT NULL,
    last_at     double precision,
    agent       text NOT NULL,
    -- What is enqueued at each of its times, as JSON.
    run         text NOT NULL,
    created_at  double precision NOT NULL,
    PRIMARY KEY (user_id, id)
);

-- name: index_schedules_due
CREATE INDEX schedules_due ON schedules (next_at) WHERE paused = 0;

-- name: guard_tables
SELECT agent_runtime.guard_table('schedules');

-- name: create_wake_workers
-- Leave a token for one worker on Procrastinate; return false if none lives, so that all workers
-- have to be woken.  The worker that installs the tokens defines what is called here.
CREATE FUNCTION agent_runtime.wake_workers() RETURNS boolean
LANGUAGE plpgsql
AS $$
BEGIN
    IF to_regproc('agent_runtime_tokens.wake') IS NULL THEN
        RETURN false;
    END IF;
    RETURN agent_runtime_tokens.wake();
EXCEPTION WHEN OTHERS THEN
    -- They are being installed again, or belong to a login that shares nothing.
    RETURN false;
END
$$;
