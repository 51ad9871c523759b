-- Tokens of Procrastinate, in a schema of their own: each says that there may be work for a worker.

-- name: lock
SELECT pg_advisory_xact_lock(hashtextextended('agent_runtime_tokens', 0))

-- name: installed
SELECT obj_description(oid, 'pg_namespace') FROM pg_namespace
WHERE nspname = 'agent_runtime_tokens'

-- name: remove
DROP SCHEMA IF EXISTS agent_runtime_tokens CASCADE

-- name: create
CREATE SCHEMA agent_runtime_tokens

-- name: path
SET search_path TO agent_runtime_tokens, pg_temp

-- name: create_wake
-- Not for each commit of a burst: a worker that takes all it can leaves another token.
CREATE FUNCTION agent_runtime_tokens.wake() RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = agent_runtime_tokens, pg_temp
AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM procrastinate_workers
                   WHERE last_heartbeat > now() - interval '30 seconds') THEN
        RETURN false;
    END IF;
    IF (SELECT count(*) FROM (SELECT 1 FROM procrastinate_jobs
                              WHERE queue_name = 'agent_runtime' AND status = 'todo'
                              LIMIT 100) AS few) < 100 THEN
        INSERT INTO procrastinate_jobs (queue_name, task_name) VALUES ('agent_runtime', 'pick');
    END IF;
    RETURN true;
END
$$

-- name: share
GRANT USAGE ON SCHEMA agent_runtime_tokens TO PUBLIC

-- name: clear
-- What dead workers held.
DELETE FROM agent_runtime_tokens.procrastinate_jobs
WHERE status <> 'todo'
  AND (worker_id IS NULL OR worker_id NOT IN (
      SELECT id FROM agent_runtime_tokens.procrastinate_workers
      WHERE last_heartbeat > now() - interval '30 seconds'))
