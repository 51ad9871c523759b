-- Threads and the movement of their heads.

-- name: thread_columns
id, title, metadata, head, last_seq, last_activation, last_event, active_run,
created_at, updated_at

-- name: thread
SELECT {thread_columns}
FROM threads WHERE user_id = :user_id AND id = :thread_id AND hidden = '';

-- name: thread_exists
SELECT 1 FROM threads WHERE user_id = :user_id AND id = :thread_id AND hidden = '';

-- name: threads
SELECT {thread_columns}
FROM threads
WHERE user_id = :user_id AND updated_at < coalesce(:before, 9e999) AND hidden = ''
  AND (:children = 1 OR NOT EXISTS (
      SELECT 1 FROM runs
      WHERE runs.user_id = :user_id AND runs.thread_id = threads.id
        AND runs.parent_run_id IS NOT NULL))
ORDER BY updated_at DESC, id DESC LIMIT :limit;

-- name: create_thread
INSERT INTO threads (user_id, id, title, metadata, created_at, updated_at)
VALUES (:user_id, :thread_id, :title, :metadata, unixepoch('subsec'), unixepoch('subsec'))
ON CONFLICT (user_id, id) DO NOTHING;

-- name: update_thread
UPDATE threads SET title = :title, metadata = :metadata, updated_at = unixepoch('subsec')
WHERE user_id = :user_id AND id = :thread_id AND title = :old_title AND metadata = :old_metadata
  AND hidden = ''
RETURNING {thread_columns};

-- name: move_head
UPDATE threads SET head = :head, updated_at = unixepoch('subsec')
WHERE user_id = :user_id AND id = :thread_id AND active_run IS NULL AND head IS :expect
  AND hidden = ''
  AND (:head IS NULL OR EXISTS (
      SELECT 1 FROM nodes
      WHERE user_id = :user_id AND thread_id = :thread_id AND id = :head AND status = 'closed'));
