-- Durable jobs.

-- name: enqueue_job
INSERT INTO jobs (user_id, id, thread_id, kind, key, payload, blob, status, due_at, created_at)
VALUES (:user_id, :id, :thread_id, :kind, :key, :payload, :blob, 'ready',
        unixepoch('subsec'), unixepoch('subsec'))
ON CONFLICT (user_id, thread_id, kind, key) DO NOTHING
RETURNING id;

-- name: claim_job
UPDATE jobs
SET status = 'claimed', token = :token, attempts = attempts + 1,
    due_at = unixepoch('subsec') + :seconds
WHERE user_id = :user_id AND id = (
    SELECT id FROM jobs
    WHERE user_id = :user_id AND kind = :kind AND status IN ('ready', 'claimed')
      AND due_at <= unixepoch('subsec') AND (:thread_id IS NULL OR thread_id = :thread_id)
      AND (:key IS NULL OR key = :key)
    ORDER BY created_at, id LIMIT 1)
RETURNING id, thread_id, kind, key, payload, blob, attempts, token;

-- name: claimed_job
SELECT id, thread_id, kind, key, payload, blob, attempts, token FROM jobs
WHERE user_id = :user_id AND kind = :kind AND status = 'claimed' AND token = :token;

-- The ends of a claim can be written twice by the one who holds its token, should the first answer
-- be lost on its way.

-- name: finish_job
UPDATE jobs SET status = 'done', finished_at = unixepoch('subsec')
WHERE user_id = :user_id AND id = :id AND token = :token AND status IN ('claimed', 'done');

-- name: end_job
-- As a part of the commit of what the job was for.
UPDATE jobs SET status = 'done', finished_at = unixepoch('subsec')
WHERE user_id = :user_id AND id = :id AND token = :token AND status = 'claimed';

-- name: retry_job
UPDATE jobs
SET status = 'ready', due_at = unixepoch('subsec') + :retry_after, detail = :detail
WHERE user_id = :user_id AND id = :id AND token = :token AND status IN ('claimed', 'ready');

-- name: give_up_job
UPDATE jobs SET status = 'failed', detail = :detail, finished_at = unixepoch('subsec')
WHERE user_id = :user_id AND id = :id AND token = :token AND status IN ('claimed', 'failed');
