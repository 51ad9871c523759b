-- Durable jobs.

-- name: enqueue_job
INSERT INTO jobs (user_id, id, thread_id, kind, key, payload, blob, status, due_at, created_at)
VALUES (:user_id, :id, :thread_id, :kind, :key, :payload, :blob, 'ready',
        {now}, {now})
ON CONFLICT (user_id, thread_id, kind, key) DO NOTHING
RETURNING id;

-- name: claimed_job
SELECT id, thread_id, kind, key, payload, blob, attempts, token FROM jobs
WHERE user_id = :user_id AND kind = :kind AND status = 'claimed' AND token = :token;

-- name: finish_job
UPDATE jobs SET status = 'done', finished_at = {now}
WHERE user_id = :user_id AND id = :id AND token = :token AND status IN ('claimed', 'done');

-- name: end_job
-- As a part of the commit of what the job was for.
UPDATE jobs SET status = 'done', finished_at = {now}
WHERE user_id = :user_id AND id = :id AND token = :token AND status = 'claimed';

-- name: retry_job
UPDATE jobs
SET status = 'ready', due_at = {now} + :retry_after, detail = :detail
WHERE user_id = :user_id AND id = :id AND token = :token AND status IN ('claimed', 'ready');

-- name: give_up_job
UPDATE jobs SET status = 'failed', detail = :detail, finished_at = {now}
WHERE user_id = :user_id AND id = :id AND token = :token AND status IN ('claimed', 'failed');
