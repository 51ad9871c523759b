-- What a thread must not be seen for: `import …` while it is being written, `delete …` while it is
-- being deleted, in several transactions each; empty for every other thread.

-- name: add_hidden
ALTER TABLE threads ADD COLUMN hidden text NOT NULL DEFAULT '';

-- name: index_hidden_threads
CREATE INDEX threads_hidden ON threads (user_id, hidden) WHERE hidden <> '';

-- Foreign keys are looked at from both sides: before a row is deleted, all that may refer to it is
-- searched.  Where no index serves that search it walks the thread, or all of the owner's threads,
-- for every row deleted, and an index would make every append dearer.  Those rows are written by
-- the store beside what they refer to, in one transaction, and deleted with it.

-- name: loosen_nodes
ALTER TABLE nodes
    DROP CONSTRAINT nodes_user_id_run_id_fkey,
    DROP CONSTRAINT nodes_user_id_thread_id_blob_fkey;

-- name: loosen_calls
ALTER TABLE calls DROP CONSTRAINT calls_user_id_thread_id_blob_fkey;

-- name: loosen_activations
ALTER TABLE activations
    DROP CONSTRAINT activations_user_id_run_id_fkey,
    DROP CONSTRAINT activations_user_id_thread_id_blob_fkey,
    DROP CONSTRAINT activations_user_id_thread_id_prefix_blob_fkey;

-- name: loosen_events
ALTER TABLE events
    DROP CONSTRAINT events_user_id_run_id_fkey,
    DROP CONSTRAINT events_user_id_thread_id_node_id_fkey;

-- name: loosen_usage
ALTER TABLE usage DROP CONSTRAINT usage_user_id_thread_id_node_id_fkey;

-- name: loosen_runs
ALTER TABLE runs DROP CONSTRAINT runs_user_id_thread_id_open_node_fkey;
