-- Durable jobs.

-- name: enqueue_job
-- A key is queued once for good: its row stays when the job is done, so the same work is never paid for again.
INSERT INTO jobs (user_id, id, thread_id, kind, key, payload, blob, status, due_at, created_at)
VALUES (:user_id, :id, :thread_id, :kind, :key, :payload, :blob, 'ready',
        {now}, {now})
ON CONFLICT (user_id, thread_id, kind, key) DO NOTHING
RETURNING id;

-- name: claimed_job
SELECT id, thread_id, kind, key, payload, blob, attempts, token FROM jobs
WHERE user_id = :user_id AND kind = :kind AND status = 'claimed' AND token = :token;

-- name: standing_claims
SELECT key, token FROM jobs
WHERE user_id = :user_id AND thread_id = :thread_id AND kind = :kind
  AND status = 'claimed' AND due_at > {now};

-- name: finish_job
-- Accepts a job that the same token has finished, so that it can be repeated if its answer is lost.
UPDATE jobs SET status = 'done', finished_at = {now}
WHERE user_id = :user_id AND id = :id AND token = :token AND status IN ('claimed', 'done');

-- name: end_job
-- Part of the commit that writes the job's result; a job that has ended makes the commit miss.
UPDATE jobs SET status = 'done', finished_at = {now}
WHERE user_id = :user_id AND id = :id AND token = :token AND status = 'claimed';

-- name: retry_job
-- Accepts a job that is ready as well, so that it can be repeated if its answer is lost.
UPDATE jobs
SET status = 'ready', due_at = {now} + :retry_after, detail = :detail
WHERE user_id = :user_id AND id = :id AND token = :token AND status IN ('claimed', 'ready');

-- name: give_up_job
UPDATE jobs SET status = 'failed', detail = :detail, finished_at = {now}
WHERE user_id = :user_id AND id = :id AND token = :token AND status IN ('claimed', 'failed');
