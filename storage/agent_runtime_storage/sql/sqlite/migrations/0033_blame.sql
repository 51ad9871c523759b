-- How likely a run is what brings down its workers, beyond how often it was there.

-- name: add_queue_blame
-- Its shares in the losses of its workers since its last step; 1 for a loss in which it was alone.
ALTER TABLE queue ADD COLUMN blame REAL NOT NULL DEFAULT 0;

-- name: add_queue_blamed
-- Whether the loss of the worker that has it was counted; its lease may expire later.
ALTER TABLE queue ADD COLUMN blamed INTEGER NOT NULL DEFAULT 0;
