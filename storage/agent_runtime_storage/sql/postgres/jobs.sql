-- Durable jobs.

-- name: claim_job
-- SKIP LOCKED: two processes that claim at once take two jobs, and neither waits for the other.  A
-- claim that has expired, or is void, is due again.
UPDATE jobs
SET status = 'claimed', token = :token, attempts = attempts + 1,
    due_at = unix_seconds() + :seconds
WHERE user_id = :user_id AND id = (
    SELECT id FROM jobs
    WHERE user_id = :user_id AND kind = :kind AND status IN ('ready', 'claimed')
      AND (due_at <= unix_seconds() OR (status = 'claimed' AND token = :void))
      AND (:thread_id::text IS NULL OR thread_id = :thread_id)
      AND (:key::text IS NULL OR key = :key)
    ORDER BY created_at, id LIMIT 1
    FOR UPDATE SKIP LOCKED)
RETURNING id, thread_id, kind, key, payload, blob, attempts, token;
