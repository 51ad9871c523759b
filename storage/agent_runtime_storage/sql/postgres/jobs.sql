-- Durable jobs.

-- name: enqueue_job
INSERT INTO jobs (user_id, id, thread_id, kind, key, payload, blob, status, due_at, created_at)
VALUES (:user_id, :id, :thread_id, :kind, :key, :payload, :blob, 'ready',
        unix_seconds(), unix_seconds())
ON CONFLICT (user_id, thread_id, kind, key) DO NOTHING
RETURNING id;

-- name: claim_job
UPDATE jobs
SET status = 'claimed', token = :token, attempts = attempts + 1,
    due_at = unix_seconds() + :seconds
WHERE user_id = :user_id AND id = (
    SELECT id FROM jobs
    WHERE user_id = :user_id AND kind = :kind AND status IN ('ready', 'claimed')
      AND due_at <= unix_seconds() AND (:thread_id::text IS NULL OR thread_id = :thread_id)
      AND (:key::text IS NULL OR key = :key)
    ORDER BY created_at, id LIMIT 1
    FOR UPDATE SKIP LOCKED)
RETURNING id, thread_id, kind, key, payload, blob, attempts, token;

-- name: claimed_job
SELECT id, thread_id, kind, key, payload, blob, attempts, token FROM jobs
WHERE user_id = :user_id AND kind = :kind AND status = 'claimed' AND token = :token;

-- The ends of a claim can be written twice by the one who holds its token, should the first answer
-- be lost on its way.

-- name: finish_job
UPDATE jobs SET status = 'done', finished_at = unix_seconds()
WHERE user_id = :user_id AND id = :id AND token = :token AND status IN ('claimed', 'done');

-- name: end_job
-- As a part of the commit of what the job was for.
UPDATE jobs SET status = 'done', finished_at = unix_seconds()
WHERE user_id = :user_id AND id = :id AND token = :token AND status = 'claimed';

-- name: retry_job
UPDATE jobs
SET status = 'ready', due_at = unix_seconds() + :retry_after, detail = :detail
WHERE user_id = :user_id AND id = :id AND token = :token AND status IN ('claimed', 'ready');

-- name: give_up_job
UPDATE jobs SET status = 'failed', detail = :detail, finished_at = unix_seconds()
WHERE user_id = :user_id AND id = :id AND token = :token AND status IN ('claimed', 'failed');
