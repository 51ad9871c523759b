-- Durable jobs.

-- name: claim_job
-- A claim that has expired, or is void, is due again.  The condition on the status is that of the
-- partial index `jobs_unfinished`, which also gives the order.
UPDATE jobs
SET status = 'claimed', token = :token, attempts = attempts + 1,
    due_at = unixepoch('subsec') + :seconds
WHERE user_id = :user_id AND id = (
    SELECT id FROM jobs
    WHERE user_id = :user_id AND kind = :kind AND status IN ('ready', 'claimed')
      AND (due_at <= unixepoch('subsec') OR (status = 'claimed' AND token = :void))
      AND (:thread_id IS NULL OR thread_id = :thread_id)
      AND (:key IS NULL OR key = :key)
    ORDER BY created_at, id LIMIT 1)
RETURNING id, thread_id, kind, key, payload, blob, attempts, token;
