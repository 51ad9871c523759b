-- Runs, their leases, and the budget of their tree.

-- name: runs_of_parent_thread
-- Rows of earlier versions have the engine's part of the spec at its top.
{run_select}
WHERE r.user_id = :user_id AND r.parent_run_id IN (
    SELECT p.id FROM runs AS p WHERE p.user_id = :user_id AND p.thread_id = :parent_thread_id)
  AND (:task_key IS NULL OR coalesce(json_extract(r.spec, '$.internal.delegation.key'),
                json_extract(r.spec, '$.delegation.key')) = :task_key)
  AND {visible_run_filter} AND {run_filter};
