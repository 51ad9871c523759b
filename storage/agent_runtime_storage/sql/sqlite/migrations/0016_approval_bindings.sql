-- What is allowed for the rest of a thread is so for one tool, not for all of its name.

-- name: add_binding
-- A digest of the tool; nothing has the empty one, so what was allowed before is asked about again.
ALTER TABLE approvals ADD COLUMN binding TEXT NOT NULL DEFAULT '';
