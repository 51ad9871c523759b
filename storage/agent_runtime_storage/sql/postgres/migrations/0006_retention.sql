-- What a thread must not be seen for: `import …` while it is being written, `delete …` while it is
-- being deleted, in several transactions each; empty for every other thread.

-- name: add_hidden
ALTER TABLE threads ADD COLUMN hidden text NOT NULL DEFAULT '';

-- name: index_hidden_threads
CREATE INDEX threads_hidden ON threads (user_id, hidden) WHERE hidden <> '';
