-- Workers that were lost of late: what tells a run that brings down its workers from one whose
-- workers were brought down.  And what the pick counts for its limits.

-- name: create_lost_workers
CREATE TABLE lost_workers (
    -- Of no owner: only the runtime's own work sees the rows.
    user_id   text COLLATE "C" NOT NULL DEFAULT '' CHECK (user_id = ''),
    instance  text COLLATE "C" NOT NULL PRIMARY KEY CHECK (instance <> ''),
    lost_at   double precision NOT NULL
) WITH (fillfactor = 50);

-- name: index_lost_workers
CREATE INDEX lost_workers_by_time ON lost_workers (lost_at);

-- name: add_queue_lost_at
-- When the first of the row's takeovers was noticed.
ALTER TABLE queue ADD COLUMN lost_at double precision NOT NULL DEFAULT 0;

-- name: index_queue_suspects
CREATE INDEX queue_suspects ON queue (tag, enqueued_at) WHERE takeovers >= 2;

-- name: index_queue_working_user
CREATE INDEX queue_working_user ON queue (user_id) WHERE state = 'working';

-- name: index_queue_working_agent
CREATE INDEX queue_working_agent ON queue (program, agent) WHERE state = 'working';

-- name: index_queue_working_model
CREATE INDEX queue_working_model ON queue (model) WHERE state = 'working';

-- name: guard_tables
SELECT agent_runtime.guard_table('lost_workers');
