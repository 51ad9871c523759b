-- Runs, their leases, and the budget of their tree.

-- name: run_select
SELECT r.id, r.thread_id, r.parent_run_id, r.root_run_id, r.agent, r.status, r.stop_reason,
       r.detail, r.task_id, r.open_node, r.steps, r.max_steps, r.cancel_requested, r.spec,
       r.output,
       CASE WHEN r.output_blob IS NULL THEN '' ELSE coalesce(b.object, b.codec, 'lost') END, b.data,
       r.epoch, r.lease_host, r.lease_boot, r.lease_pid, r.lease_started,
       coalesce(r.lease_until > {now}, false),
       r.budget_tokens, r.budget_cost, r.tree_reserved_tokens, r.tree_reserved_cost,
       r.tree_settled_tokens, r.tree_settled_cost, r.tree_unsettled_tokens, r.tree_unsettled_cost,
       r.kept_tokens, r.kept_cost, r.created_at, r.updated_at, r.finished_at,
       r.lease_machine, r.lease_instance
FROM runs AS r
LEFT JOIN blobs AS b
    ON b.user_id = r.user_id AND b.thread_id = r.thread_id AND b.hash = r.output_blob

-- name: visible_run_filter
-- Runs of a thread that is being imported or deleted do not exist for readers.
EXISTS (SELECT 1 FROM threads AS t
        WHERE t.user_id = r.user_id AND t.id = r.thread_id AND t.hidden = '')

-- name: visible_thread_filter
EXISTS (SELECT 1 FROM threads WHERE user_id = :user_id AND id = :thread_id AND hidden = '')

-- name: run
{run_select}
WHERE r.user_id = :user_id AND r.id = :run_id AND {visible_run_filter};

-- name: run_filter
-- No index helps with such a condition, so each of the queries below names one column outright.
(:thread_id{as_text} IS NULL OR r.thread_id = :thread_id)
  AND (:parent_run_id{as_text} IS NULL OR r.parent_run_id = :parent_run_id)
  AND (:root_run_id{as_text} IS NULL OR r.root_run_id = :root_run_id)
  AND (:status{as_text} IS NULL OR r.status IN (SELECT value FROM {each_text}(:status{as_jsonb})))
  AND (:before{as_text} IS NULL OR (r.created_at, r.id) < (
      SELECT o.created_at, o.id FROM runs AS o WHERE o.user_id = :user_id AND o.id = :before))
ORDER BY r.created_at DESC, r.id DESC LIMIT :limit

-- name: runs
{run_select}
WHERE r.user_id = :user_id AND {visible_run_filter} AND {run_filter};

-- name: runs_not_over
-- The condition on the status is that of the partial index `runs_active`.
{run_select}
WHERE r.user_id = :user_id AND r.status IN ('queued', 'running', 'suspended') AND {visible_run_filter} AND {run_filter};

-- name: runs_of_thread
{run_select}
WHERE r.user_id = :user_id AND r.thread_id = :thread_id AND {visible_thread_filter} AND {run_filter};

-- name: runs_of_parent
{run_select}
WHERE r.user_id = :user_id AND r.parent_run_id = :parent_run_id AND {visible_run_filter} AND {run_filter};

-- name: runs_of_root
{run_select}
WHERE r.user_id = :user_id AND r.root_run_id = :root_run_id AND {visible_run_filter} AND {run_filter};

-- name: run_exists
SELECT 1 FROM runs AS r WHERE r.user_id = :user_id AND r.id = :run_id AND {visible_run_filter};

-- name: run_place
SELECT r.thread_id, r.root_run_id FROM runs AS r
WHERE r.user_id = :user_id AND r.id = :run_id AND {visible_run_filter};

-- name: parent_can_spawn
-- A cancelled tree must not grow.
SELECT 1 FROM runs
WHERE user_id = :user_id AND id = :parent_run_id AND root_run_id = :root_run_id
  AND status = 'running' AND cancel_requested = 0;

-- name: begin_run
INSERT INTO runs (user_id, id, thread_id, parent_run_id, root_run_id, agent, status, task_id,
                  max_steps, spec, epoch, lease_host, lease_boot, lease_pid, lease_started,
                  lease_until, budget_tokens, budget_cost, own_reserved_tokens, own_reserved_cost,
                  created_at, updated_at, working_since, lease_machine, lease_instance)
VALUES (:user_id, :run_id, :thread_id, :parent_run_id, :root_run_id, :agent, 'running', :task_id,
        :max_steps, :spec, 1, :host, :boot, :pid, :started,
        {now} + :seconds, :budget_tokens, :budget_cost, :own_tokens, :own_cost,
        {now}, {now}, {now},
        :machine, :instance);

-- name: begin_thread
-- Of two runs that begin on a thread at once, the second finds `active_run` set and misses.  It is
-- the run itself if a worker has picked it.
UPDATE threads
SET active_run = :run_id, last_seq = last_seq + :nodes,
    last_activation = last_activation + :activations, last_event = last_event + :events,
    updated_at = {now}
WHERE user_id = :user_id AND id = :thread_id AND hidden = ''
  AND (active_run IS NULL OR active_run = :run_id)
  AND head {equals} :expect_head AND last_seq = :expect_seq
  AND (:activations = 0 OR last_activation = :expect_activation)
RETURNING last_event;

-- name: lease_taken
status = 'running', stop_reason = NULL, detail = '', output = {no_bytes}, output_blob = NULL,
    -- Resuming a run that has ended revokes its cancel; otherwise the cancel still applies.
    finished_at = NULL, epoch = epoch + 1,
    cancel_requested = CASE WHEN status IN ('queued', 'running', 'suspended')
                            THEN cancel_requested ELSE 0 END,
    lease_host = :host, lease_boot = :boot, lease_pid = :pid, lease_started = :started,
    lease_machine = :machine, lease_instance = :instance,
    -- A process that died worked at least until it last wrote or renewed its lease.
    worked_seconds = worked_seconds
        + coalesce({greatest}(updated_at - working_since,
                              lease_until - :seconds - working_since, 0), 0),
    working_since = {now},
    lease_until = {now} + :seconds, updated_at = {now}

-- name: take_run
UPDATE runs SET {lease_taken}
WHERE user_id = :user_id AND id = :run_id AND epoch = :replaces AND status <> 'succeeded'
  AND coalesce(stop_reason, '') <> 'imported'
  AND (:was{as_text} IS NULL OR status = :was);

-- name: adopt_run
-- Whoever wrote the import chose its limits, and the time that it had worked.
UPDATE runs
SET stop_reason = CASE WHEN status = 'failed' THEN 'error' ELSE 'cancelled' END,
    max_steps = steps, budget_tokens = :tokens, budget_cost = :cost, worked_seconds = 0
WHERE user_id = :user_id AND id = :run_id AND stop_reason = 'imported'
  AND parent_run_id IS NULL;

-- name: replace_spec
-- A takeover raises the epoch, so this misses if somebody has resumed the run meanwhile.
UPDATE runs SET spec = :spec
WHERE user_id = :user_id AND id = :run_id AND epoch = :epoch;

-- name: take_thread
-- Misses if another run of the thread is active: two would append to the same head.
UPDATE threads SET active_run = :run_id
WHERE user_id = :user_id
  AND id = (SELECT thread_id FROM runs WHERE user_id = :user_id AND id = :run_id)
  AND hidden = '' AND (active_run IS NULL OR active_run = :run_id);

-- name: free_thread
-- Only if the run holds the thread.
UPDATE threads SET active_run = NULL, updated_at = {now}
WHERE user_id = :user_id
  AND id = (SELECT thread_id FROM runs WHERE user_id = :user_id AND id = :run_id)
  AND active_run = :run_id;

-- name: renew_lease
UPDATE runs SET lease_until = {now} + :seconds
WHERE user_id = :user_id AND id = :run_id AND epoch = :epoch AND status = 'running'
RETURNING cancel_requested;

-- name: cancel_runs
-- Only marks the runs: whoever holds the lease of a run ends it.
WITH RECURSIVE subtree (id) AS (
    SELECT id FROM runs WHERE user_id = :user_id AND id = :run_id
    UNION
    SELECT r.id FROM subtree AS s {ordered_join} runs AS r
      ON r.user_id = :user_id AND r.parent_run_id = s.id
)
UPDATE runs SET cancel_requested = 1, updated_at = {now}
WHERE user_id = :user_id AND id IN (SELECT id FROM subtree)
  AND status IN ('queued', 'running', 'suspended')
RETURNING id, thread_id;

-- name: poll
-- Without a row, the lease is lost.
SELECT r.cancel_requested,
       EXISTS (SELECT 1 FROM inbox AS i WHERE i.user_id = r.user_id AND i.thread_id = r.thread_id)
FROM runs AS r
WHERE r.user_id = :user_id AND r.id = :run_id AND r.epoch = :epoch AND r.status = 'running';

-- name: spend
-- On the root.  Spending is booked in any case: it has happened.  Only a new reservation has to fit
-- the budget; one of a run below the root also has to leave what the root keeps for itself.  One that
-- was planned without a budget does not fit any: its run would not know of the limit.
UPDATE runs
SET tree_reserved_tokens = tree_reserved_tokens - :release_tokens + :reserve_tokens,
    tree_reserved_cost = tree_reserved_cost - :release_cost + :reserve_cost,
    tree_settled_tokens = tree_settled_tokens + :settle_tokens,
    tree_settled_cost = tree_settled_cost + :settle_cost,
    tree_unsettled_tokens = tree_unsettled_tokens + :unsettle_tokens,
    tree_unsettled_cost = tree_unsettled_cost + :unsettle_cost,
    kept_tokens = coalesce(:keep_tokens, kept_tokens),
    kept_cost = coalesce(:keep_cost, kept_cost)
WHERE user_id = :user_id AND id = :root_run_id
  AND (:reserving = 0 OR (
      (:unplanned = 0 OR budget_tokens IS NULL AND budget_cost IS NULL)
      AND (budget_tokens IS NULL
       OR tree_settled_tokens + :settle_tokens + tree_unsettled_tokens + :unsettle_tokens
          + tree_reserved_tokens - :release_tokens + :reserve_tokens
          + CASE WHEN :below = 1 THEN kept_tokens ELSE 0 END <= budget_tokens)
      AND (budget_cost IS NULL
       OR tree_settled_cost + :settle_cost + tree_unsettled_cost + :unsettle_cost
          + tree_reserved_cost - :release_cost + :reserve_cost
          + CASE WHEN :below = 1 THEN kept_cost ELSE 0 END <= budget_cost)));

-- name: set_budget
UPDATE runs
SET budget_tokens = CASE WHEN :set_tokens = 1 THEN :tokens{as_bigint} ELSE budget_tokens END,
    budget_cost = CASE WHEN :set_cost = 1 THEN :cost{as_bigint} ELSE budget_cost END
WHERE user_id = :user_id AND id = :run_id AND root_run_id = id
  AND status <> 'succeeded';

-- name: unsettle_own
-- A call that was never reported may have been billed, so its whole reservation counts as spent.
UPDATE runs AS root
SET tree_reserved_tokens = root.tree_reserved_tokens - own.own_reserved_tokens,
    tree_reserved_cost = root.tree_reserved_cost - own.own_reserved_cost,
    tree_unsettled_tokens = root.tree_unsettled_tokens + own.own_reserved_tokens,
    tree_unsettled_cost = root.tree_unsettled_cost + own.own_reserved_cost
FROM (SELECT root_run_id, own_reserved_tokens, own_reserved_cost
      FROM runs WHERE user_id = :user_id AND id = :run_id) AS own
WHERE root.user_id = :user_id AND root.id = own.root_run_id;

-- name: clear_own
UPDATE runs SET own_reserved_tokens = 0, own_reserved_cost = 0
WHERE user_id = :user_id AND id = :run_id;
