-- Threads and the movement of their heads.

-- name: thread_columns
id, title, metadata, head, last_seq, last_activation, last_event, active_run,
created_at, updated_at

-- name: thread
SELECT {thread_columns}
FROM threads WHERE user_id = :user_id AND id = :thread_id AND hidden = '';

-- name: thread_exists
SELECT 1 FROM threads WHERE user_id = :user_id AND id = :thread_id AND hidden = '';

-- name: create_thread
-- The id of an archived thread stays taken, so that it can be restored.
INSERT INTO threads (user_id, id, title, metadata, created_at, updated_at)
SELECT :user_id, :thread_id, :title, :metadata, {now}, {now}
WHERE NOT EXISTS (
    SELECT 1 FROM archives WHERE user_id = :user_id AND thread_id = :thread_id)
ON CONFLICT (user_id, id) DO NOTHING;

-- name: update_thread
UPDATE threads SET title = :title, metadata = :metadata, updated_at = {now}
WHERE user_id = :user_id AND id = :thread_id AND title = :old_title AND metadata = :old_metadata
  AND hidden = ''
RETURNING {thread_columns};

-- name: move_head
UPDATE threads SET head = :head, updated_at = {now}
WHERE user_id = :user_id AND id = :thread_id AND active_run IS NULL AND head {equals} :expect
  AND hidden = ''
  AND (:head{as_bigint} IS NULL OR EXISTS (
      SELECT 1 FROM nodes
      WHERE user_id = :user_id AND thread_id = :thread_id AND id = :head AND status = 'closed'));
