-- Threads and the movement of their heads.

-- name: threads
SELECT {thread_columns}
FROM threads
WHERE user_id = :user_id AND updated_at < coalesce(:before, 9e999) AND hidden = ''
  AND (:children = 1 OR NOT EXISTS (
      SELECT 1 FROM runs
      WHERE runs.user_id = :user_id AND runs.thread_id = threads.id
        AND runs.parent_run_id IS NOT NULL))
ORDER BY updated_at DESC, id DESC LIMIT :limit;
