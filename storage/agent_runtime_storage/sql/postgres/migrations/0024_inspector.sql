-- What the inspector reads: the size of each part of a prompt's beginning, and what waits or works now.

-- name: add_parts
-- A JSON object of token counts; NULL in rows of older versions.
ALTER TABLE activations ADD COLUMN parts text;

-- name: index_open_questions
CREATE INDEX questions_open ON questions (user_id, asked_at) WHERE status = 'open';

-- name: index_active_runs
CREATE INDEX runs_active ON runs (user_id, updated_at)
WHERE status IN ('queued', 'running', 'suspended');
