-- The newest commit of a run, so that who lost its answer on the way can ask whether it is there.

-- name: add_commit_id
ALTER TABLE runs ADD COLUMN commit_id text NOT NULL DEFAULT '';
