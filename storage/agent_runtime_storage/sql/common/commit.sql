-- The parts of a commit, in the order in which they run.

-- name: commit_guard
-- A writer that lost the lease misses here, before it writes anything.  So does the second try of a
-- commit in doubt, if the first one was written: :after_commit is then no longer the newest.  And so
-- does the first one, if a slow server comes to it after the second.
UPDATE runs
SET commit_id = :commit_id, steps = coalesce(:steps, steps),
    own_reserved_tokens = own_reserved_tokens + :own_tokens,
    own_reserved_cost = own_reserved_cost + :own_cost,
    updated_at = {now}
WHERE user_id = :user_id AND id = :run_id AND epoch = :epoch AND status = 'running'
  AND thread_id = :thread_id AND root_run_id = :root_run_id
  AND commit_id <> :commit_id
  AND (:after_commit{as_text} IS NULL OR commit_id = :after_commit);

-- name: newest_commit
SELECT commit_id FROM runs WHERE user_id = :user_id AND id = :run_id;

-- name: commit_thread
-- Allocates the ids of all that the commit appends.  The update locks the row, so ids rise in the
-- order of the commits; a reader with a cursor over a sequence would miss events.
UPDATE threads
SET last_seq = last_seq + :nodes, last_activation = last_activation + :activations,
    last_event = last_event + :events, last_usage = last_usage + :usage,
    updated_at = {now}
WHERE user_id = :user_id AND id = :thread_id
  AND (:nodes = 0 OR last_seq = :expect_seq)
  AND (:activations = 0 OR last_activation = :expect_activation)
RETURNING last_event;

-- name: start_call
-- A call that was started before misses, so none is started twice.
UPDATE calls SET status = 'started'
WHERE user_id = :user_id AND thread_id = :thread_id AND node_id = :node_id
  AND position = :position AND status = 'pending';

-- name: wait_call
-- A call that asked a person a question runs once more, with the answer.
UPDATE calls SET status = 'pending'
WHERE user_id = :user_id AND thread_id = :thread_id AND node_id = :node_id
  AND position = :position AND status = 'started';

-- name: finish_call
UPDATE calls
SET status = 'done', outcome = :outcome, body = :body, blob = :blob, shown = :shown,
    tokens = :tokens
WHERE user_id = :user_id AND thread_id = :thread_id AND node_id = :node_id
  AND position = :position AND status IN ('pending', 'started');

-- name: show_call
-- How much of a result prompts can show is known once its exchange has all results.
UPDATE calls SET shown = :shown, tokens = :tokens
WHERE user_id = :user_id AND thread_id = :thread_id AND node_id = :node_id
  AND position = :position AND status = 'done';

-- name: close_node
-- From now on the node's tokens include those of its results.
UPDATE nodes
SET status = 'closed',
    tokens = tokens + (SELECT coalesce(sum(tokens), 0){as_bigint} FROM calls
                       WHERE user_id = :user_id AND thread_id = :thread_id AND node_id = :id)
WHERE user_id = :user_id AND thread_id = :thread_id AND id = :id AND status = 'open'
  AND NOT EXISTS (SELECT 1 FROM calls
                  WHERE user_id = :user_id AND thread_id = :thread_id AND node_id = :id
                    AND status <> 'done');

-- name: clear_open_node
-- Misses if the exchange is not the one that this run has open.
UPDATE runs SET open_node = NULL
WHERE user_id = :user_id AND id = :run_id AND open_node = :id;

-- name: append_node
-- Nothing is appended under an open exchange, nor under a node that does not exist.
INSERT INTO nodes (user_id, thread_id, id, parent_id, kind, status, role, run_id, activation_id,
                   body, blob, tokens, created_at)
SELECT :user_id, :thread_id, :id, :parent_id, :kind, :status, :role, :run_id, :activation_id,
       :body, :blob, :tokens, {now}
WHERE :parent_id{as_bigint} IS NULL OR EXISTS (
    SELECT 1 FROM nodes
    WHERE user_id = :user_id AND thread_id = :thread_id AND id = :parent_id
      AND status = 'closed');

-- name: append_call
INSERT INTO calls (user_id, thread_id, node_id, position, tool, status)
VALUES (:user_id, :thread_id, :node_id, :position, :tool, :status);

-- name: set_open_node
-- A run has one open exchange at most.
UPDATE runs SET open_node = :id
WHERE user_id = :user_id AND id = :run_id AND open_node IS NULL;

-- name: set_head
-- The head moves only to a closed node, so no prompt ends in calls without results.
UPDATE threads SET head = :head
WHERE user_id = :user_id AND id = :thread_id AND EXISTS (
    SELECT 1 FROM nodes
    WHERE user_id = :user_id AND thread_id = :thread_id AND id = :head AND status = 'closed');

-- name: append_activation
INSERT INTO activations (user_id, thread_id, id, anchor, run_id, cause, body, blob, prefix_blob,
                         parts, created_at)
VALUES (:user_id, :thread_id, :id, :anchor, :run_id, :cause, :body, :blob, :prefix_blob,
        :parts, {now});

-- name: drain_inbox
-- Misses if another commit has drained the item, so each is read once.
DELETE FROM inbox WHERE user_id = :user_id AND thread_id = :thread_id AND id = :id;

-- name: require_quiet_inbox
-- An update, not a SELECT: `post` waits for the row's lock, so nothing arrives before the commit.
UPDATE threads SET updated_at = updated_at
WHERE user_id = :user_id AND id = :thread_id
  AND NOT EXISTS (SELECT 1 FROM inbox WHERE user_id = :user_id AND thread_id = :thread_id);

-- name: require_undisturbed
-- After `commit_guard` and `commit_thread`, which hold the locks that `cancel` and `post` wait for.
UPDATE runs SET updated_at = updated_at
WHERE user_id = :user_id AND id = :run_id AND cancel_requested = 0
  AND NOT EXISTS (SELECT 1 FROM inbox WHERE user_id = :user_id AND thread_id = :thread_id);

-- name: node_is_there_filter
-- Instead of a foreign key, which would search all events and usage for each node that is deleted.
(:node_id{as_bigint} IS NULL OR EXISTS (
    SELECT 1 FROM nodes
    WHERE user_id = :user_id AND thread_id = :thread_id AND id = :node_id))

-- name: append_usage
-- `commit_thread` has raised the counter to the last row of the commit; `back` counts from there.
INSERT INTO usage (user_id, thread_id, id, run_id, root_run_id, node_id, purpose, model,
                   prompt_tokens, cached_tokens, cache_write_tokens, completion_tokens,
                   counted_tokens, cost, reported, created_at)
SELECT user_id, id, last_usage - :back, :run_id, :root_run_id, :node_id, :purpose, :model,
       :prompt_tokens, :cached_tokens, :cache_write_tokens, :completion_tokens,
       :counted_tokens, :cost, :reported, {now}
FROM threads WHERE user_id = :user_id AND id = :thread_id AND {node_is_there_filter};

-- name: finish_run
-- A suspended run will resume, so it is not finished and keeps its reserve for the root.
UPDATE runs
SET status = :status, stop_reason = :stop_reason, detail = :detail, output = :output,
    output_blob = :output_blob,
    finished_at = CASE WHEN :status <> 'suspended' THEN {now} END,
    lease_host = NULL, lease_boot = NULL, lease_pid = NULL, lease_started = NULL,
    lease_machine = '', lease_instance = '',
    lease_until = NULL,
    worked_seconds = worked_seconds + coalesce({greatest}({now} - working_since, 0), 0),
    working_since = NULL,
    kept_tokens = CASE WHEN :status = 'suspended' THEN kept_tokens ELSE 0 END,
    kept_cost = CASE WHEN :status = 'suspended' THEN kept_cost ELSE 0 END
WHERE user_id = :user_id AND id = :run_id;

-- name: append_event
INSERT INTO events (user_id, thread_id, id, run_id, kind, node_id, data, created_at)
SELECT user_id, id, last_event - :back, :run_id, :kind, :node_id, :data, {now}
FROM threads WHERE user_id = :user_id AND id = :thread_id AND {node_is_there_filter}
RETURNING id, created_at;
