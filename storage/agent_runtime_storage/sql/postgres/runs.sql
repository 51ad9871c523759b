-- Runs, their leases, and the budget of their tree.

-- name: visible_run_filter
-- OFFSET, or the planner makes a join of it, and reads all threads of the owner.
EXISTS (SELECT 1 FROM threads AS t
        WHERE t.user_id = r.user_id AND t.id = r.thread_id AND t.hidden = '' OFFSET 0)

-- name: runs_of_parent_thread
-- Rows of earlier versions have the engine's part of the spec at its top.
{run_select}
WHERE r.user_id = :user_id AND r.parent_run_id IN (
    SELECT p.id FROM runs AS p WHERE p.user_id = :user_id AND p.thread_id = :parent_thread_id)
  AND (:task_key::text IS NULL OR coalesce(r.spec::json -> 'internal' -> 'delegation' ->> 'key',
                r.spec::json -> 'delegation' ->> 'key') = :task_key)
  AND {visible_run_filter} AND {run_filter};
