-- Runs that begin by the clock.

-- name: create_schedules
CREATE TABLE schedules (
    user_id     TEXT NOT NULL CHECK (user_id <> ''),
    id          TEXT NOT NULL CHECK (id <> ''),
    -- Five fields of cron, by the clock of a time zone.
    cron        TEXT NOT NULL,
    zone        TEXT NOT NULL,
    missed      TEXT NOT NULL CHECK (missed IN ('skip', 'once', 'all')),
    paused      INTEGER NOT NULL DEFAULT 0 CHECK (paused IN (0, 1)),
    next_at     REAL NOT NULL,
    last_at     REAL,
    agent       TEXT NOT NULL,
    -- What is enqueued at each of its times, as JSON.
    run         TEXT NOT NULL,
    created_at  REAL NOT NULL,
    PRIMARY KEY (user_id, id)
) STRICT;

-- name: index_schedules_due
CREATE INDEX schedules_due ON schedules (next_at) WHERE paused = 0;
