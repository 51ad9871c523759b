-- The queue of runs for workers.
--
-- A worker picks runs in one batch.  First, runs that are due wait again, and so do runs whose
-- worker was lost.  Then it claims a suspect and runs in the order of their tags, returns those
-- that exceed a limit, and takes the leases of the rest.
--
-- A tag is a run's place, as in weighted fair queueing: the runs of a share follow each other at a
-- distance of 1 / weight, and the lowest tag comes first.

-- name: enqueue_run
INSERT INTO runs (user_id, id, thread_id, parent_run_id, root_run_id, agent, status, max_steps,
                  spec, epoch, budget_tokens, budget_cost, created_at, updated_at)
VALUES (:user_id, :run_id, :thread_id, :parent_run_id, :root_run_id, :agent, 'queued', 0,
        :spec, 0, :budget_tokens, :budget_cost, {now}, {now});

-- name: hold_parent
-- An update, so that it locks the row: a worker that takes the parent over either sees this child,
-- or makes this statement miss.
UPDATE runs SET updated_at = {now}
WHERE user_id = :user_id AND id = :parent_run_id AND epoch = :epoch AND status = 'running'
  AND cancel_requested = 0;

-- name: enqueue
-- A share's next tag follows its last one, even if that run works already: otherwise a share that
-- never has more than one run waiting would always come first.  It never lies before the tags that
-- wait now, because an idle share saves up no turns.  Only the first run of a thread waits; the
-- others are `behind`, and no pick reads them.
INSERT INTO queue (user_id, run_id, thread_id, program, agent, version, model, state, share, tag,
                   due_at, enqueued_at, cause, task)
SELECT t.user_id, :run_id, t.id, :program, :agent, :version, :model,
       CASE WHEN :due_at{as_double} > {now} THEN 'delayed'
            WHEN EXISTS (SELECT 1 FROM queue AS o
                         WHERE o.user_id = t.user_id AND o.thread_id = t.id
                           AND o.state IN ('waiting', 'behind', 'working', 'parked')) THEN 'behind'
            ELSE 'waiting' END,
       :share,
       {greatest}(:floor{as_double}, coalesce((
           SELECT max(o.tag) FROM queue AS o
           WHERE o.user_id = t.user_id AND o.share = :share
             AND o.state IN ('waiting', 'behind', 'working')), :floor{as_double}))
           + :step{as_double},
       :due_at{as_double}, {now}, '', :task
FROM threads AS t WHERE t.user_id = :user_id AND t.id = :thread_id AND t.hidden = '';

-- name: enqueue_child
-- The first child gets its parent's tag, so that a tree that has begun ends before others begin.
-- Each further child comes one turn later, so that many children do not delay the other shares.
INSERT INTO queue (user_id, run_id, thread_id, program, agent, version, model, state, share, tag,
                   due_at, enqueued_at, cause, task)
SELECT t.user_id, :run_id, t.id, p.program, p.agent, p.version,
       coalesce(nullif(:model{as_text}, ''), p.model), 'waiting', p.share,
       p.tag + (SELECT count(*) FROM runs AS c
                WHERE c.user_id = :user_id AND c.parent_run_id = :parent_run_id
                  AND c.status = 'queued' AND c.id <> :run_id),
       NULL, {now}, '', :task
FROM queue AS p JOIN threads AS t ON t.user_id = p.user_id
WHERE p.user_id = :user_id AND p.run_id = :parent_run_id AND t.id = :thread_id AND t.hidden = '';

-- name: queue_floor
-- If no run waits, tags continue from the runs at work, not from 0.
SELECT coalesce((SELECT min(tag) - 1 FROM queue WHERE state = 'waiting'),
                (SELECT max(tag) FROM queue WHERE state = 'working'), 0);

-- name: queue_ripen
-- Runs that were delayed, and runs whose question has expired.
WITH due AS MATERIALIZED (
    SELECT r.user_id, r.run_id FROM queue AS r
    WHERE r.state IN ('delayed', 'parked') AND r.due_at <= {now}
    ORDER BY r.due_at LIMIT 1000 {skip_locked})
UPDATE queue
SET state = 'waiting', due_at = NULL,
    tag = {greatest}(tag, coalesce((SELECT min(o.tag) FROM queue AS o WHERE o.state = 'waiting'), 0))
FROM due WHERE queue.user_id = due.user_id AND queue.run_id = due.run_id;

-- name: queue_lost
-- Marks the runs that the next statements change, and locks them, so that no lease of theirs is
-- renewed.
WITH lost AS MATERIALIZED (
    SELECT r.user_id, r.id
    FROM runs AS r {ordered_join} queue AS q ON q.user_id = r.user_id AND q.run_id = r.id
    WHERE r.status = 'running' AND r.lease_until <= {now} AND q.state = 'working' {skip_locked})
UPDATE queue SET claim = :claim
FROM lost WHERE queue.user_id = lost.user_id AND queue.run_id = lost.id;

-- name: queue_revoke
-- The worker may be alive and late.  If it could still renew the lease, it would work on the run in
-- addition to the worker that picks it now, and no limit would count it.  The lease ends at 0, so
-- that it has expired even if the clock is set back before the run is picked.
UPDATE runs SET epoch = epoch + 1, lease_until = 0
FROM queue AS q
WHERE q.claim = :claim AND q.state = 'working' AND runs.user_id = q.user_id AND runs.id = q.run_id;

-- name: queue_lost_workers
-- The holders of these leases.  Sorted, so that two picks do not deadlock.
INSERT INTO lost_workers (user_id, instance, lost_at)
SELECT '', lost.instance, {now}
FROM (SELECT DISTINCT r.lease_instance AS instance
      FROM queue AS q {ordered_join} runs AS r ON r.user_id = q.user_id AND r.id = q.run_id
      WHERE q.claim = :claim AND q.state = 'working' AND r.lease_instance <> '') AS lost
WHERE true ORDER BY lost.instance
ON CONFLICT (instance) DO UPDATE SET lost_at = excluded.lost_at;

-- name: queue_forget_workers
DELETE FROM lost_workers WHERE instance IN (
    SELECT r.instance FROM lost_workers AS r WHERE r.lost_at < {now} - 86400 {skip_locked});

-- name: queue_own_steps
-- The steps of a run and of the runs below it that work in its process.  A run that has its own
-- place in the queue may work elsewhere, so its steps do not count.
(WITH RECURSIVE own(id) AS (
     SELECT queue.run_id
     UNION ALL
     SELECT b.id FROM own JOIN runs AS b ON b.user_id = queue.user_id AND b.parent_run_id = own.id
     WHERE NOT {queue_placed_filter})
 SELECT sum(o.steps){as_bigint}
 FROM own {ordered_join} runs AS o ON o.user_id = queue.user_id AND o.id = own.id)

-- name: queue_holder
-- The process that held the lease.  One without a name counts as a process for this run alone.
coalesce(nullif(r.lease_instance, ''), r.id)

-- name: queue_share_blame
-- Of the runs that a lost worker had, those that were blamed most before share the blame.  All of
-- its runs are judged at once, even those whose leases expire later.
suspects AS MATERIALIZED (
    SELECT queue.user_id, queue.run_id, {queue_holder} AS instance,
           CASE WHEN queue.blame > 0 AND {queue_own_steps} <= queue.steps_seen
                THEN queue.blame ELSE 0 END AS blame
    -- Most picks find no lost worker, and must not read all runs at work: SQLite does not begin with
    -- an empty outer table, and Postgres not with a condition that is false for all rows.
    FROM (SELECT 1 FROM lost LIMIT 1) AS anybody
    {ordered_join} queue ON true
    {ordered_join} runs AS r ON r.user_id = queue.user_id AND r.id = queue.run_id
    WHERE EXISTS (SELECT 1 FROM lost)
      AND queue.state = 'working' AND queue.blamed = 0 AND r.status = 'running'
      AND EXISTS (SELECT 1 FROM lost AS l
                  WHERE l.instance = {queue_holder} AND l.owner IN ('', queue.user_id))
    {queue_blame_lock}),
ranked AS (
    SELECT s.user_id, s.run_id, s.instance, s.blame,
           rank() OVER (PARTITION BY s.instance ORDER BY s.blame DESC) AS place
    FROM suspects AS s)
UPDATE queue
SET blamed = 1, blame = ranked.blame + CASE WHEN ranked.place > 1 THEN 0 ELSE 1.0 / (
    SELECT count(*) FROM ranked AS o WHERE o.instance = ranked.instance AND o.place = 1) END
FROM ranked WHERE queue.user_id = ranked.user_id AND queue.run_id = ranked.run_id

-- name: queue_blame
-- Executed before `queue_revoke` and `queue_expire`, because it reads what they change.
WITH lost AS MATERIALIZED (
    SELECT DISTINCT {queue_holder} AS instance, '' AS owner
    FROM queue AS q {ordered_join} runs AS r ON r.user_id = q.user_id AND r.id = q.run_id
    WHERE q.claim = :claim AND q.state = 'working'),
{queue_share_blame};

-- name: queue_one_more
-- Counts takeovers in a row.  A step since the last takeover starts the count again.
takeovers = CASE WHEN {queue_own_steps} > steps_seen THEN 1 ELSE takeovers + 1 END,
    lost_at = CASE WHEN takeovers > 0 AND {queue_own_steps} <= steps_seen
                   THEN lost_at ELSE {now} END,
    steps_seen = {queue_own_steps}

-- name: queue_expire
UPDATE queue
SET state = 'waiting', claim = '', cause = 'The lease of its worker expired.', {queue_one_more}
WHERE claim = :claim AND state = 'working';

-- name: queue_takes
-- What this worker may take.  Runs at work are counted only for limits that are set.
{ordered_join} runs AS r ON r.user_id = q.user_id AND r.id = q.run_id
    {ordered_join} threads AS t ON t.user_id = q.user_id AND t.id = q.thread_id
    WHERE q.state = 'waiting'
      AND EXISTS (
          -- OFFSET keeps Postgres from turning this filter into a join, which is slow if this
          -- worker knows no agent of the queue.
          SELECT 1 FROM {each_json}(:known{as_jsonb})
          WHERE value ->> 0 = q.program AND value ->> 1 = q.agent AND value ->> 2 = q.version
          LIMIT 1 OFFSET 0)
      AND (:per_user{as_bigint} IS NULL OR :per_user{as_bigint} > (
          SELECT count(*) FROM (
              SELECT 1 FROM queue AS o WHERE o.state = 'working' AND o.user_id = q.user_id
              LIMIT :per_user{as_bigint}) AS of_user))
      AND (:per_agent{as_bigint} IS NULL OR :per_agent{as_bigint} > (
          SELECT count(*) FROM (
              SELECT 1 FROM queue AS o
              WHERE o.state = 'working' AND o.program = q.program AND o.agent = q.agent
              LIMIT :per_agent{as_bigint}) AS of_agent))
      AND (:per_model{as_bigint} IS NULL OR :per_model{as_bigint} > (
          SELECT count(*) FROM (
              SELECT 1 FROM queue AS o WHERE o.state = 'working' AND o.model = q.model
              LIMIT :per_model{as_bigint}) AS of_model))
      AND (r.status IN ('queued', 'suspended', 'failed')
           OR r.status = 'running' AND r.lease_until <= {now})
      AND t.hidden = '' AND (t.active_run IS NULL OR t.active_run = q.run_id)

-- name: queue_claim_suspect
-- A suspect has lost two workers in a row without a new step.  A worker takes one suspect at a
-- time, so that if this worker is lost too, no other suspect is blamed.
WITH due AS MATERIALIZED (
    SELECT q.user_id, q.run_id FROM queue AS q
    {queue_takes}
      AND q.takeovers >= 2 AND NOT EXISTS (
          SELECT 1 FROM queue
          {ordered_join} runs AS h ON h.user_id = queue.user_id AND h.id = queue.run_id
          WHERE queue.state = 'working' AND queue.takeovers >= 2 AND h.status = 'running'
            AND h.lease_instance = :instance AND {queue_own_steps} <= queue.steps_seen)
    ORDER BY q.tag, q.enqueued_at LIMIT 1 {queue_lock})
UPDATE queue SET state = 'working', claim = :claim, blamed = 0
FROM due WHERE queue.user_id = due.user_id AND queue.run_id = due.run_id;

-- name: queue_claim
-- Locks all rows that the rest of the batch writes and skips those that are locked, so that a pick
-- never waits.
WITH due AS MATERIALIZED (
    SELECT q.user_id, q.run_id FROM queue AS q
    {queue_takes}
      AND q.takeovers < 2
    ORDER BY q.tag, q.enqueued_at
    LIMIT :slots{as_bigint} - (SELECT count(*) FROM queue AS o
                               WHERE o.claim = :claim AND o.state = 'working') {queue_lock})
UPDATE queue SET state = 'working', claim = :claim, blamed = 0
FROM due WHERE queue.user_id = due.user_id AND queue.run_id = due.run_id;

-- name: queue_ahead_filter
(o.claim <> :claim OR (o.tag, o.enqueued_at, o.run_id)
    < (queue.tag, queue.enqueued_at, queue.run_id))

-- name: queue_trim
-- The claim did not count the runs that it took itself; this does.
UPDATE queue SET state = 'waiting', claim = ''
WHERE claim = :claim AND state = 'working' AND (
    :per_user{as_bigint} IS NOT NULL AND :per_user{as_bigint} <= (
        SELECT count(*) FROM queue AS o
        WHERE o.state = 'working' AND o.user_id = queue.user_id AND {queue_ahead_filter})
    OR :per_agent{as_bigint} IS NOT NULL AND :per_agent{as_bigint} <= (
        SELECT count(*) FROM queue AS o
        WHERE o.state = 'working' AND o.program = queue.program AND o.agent = queue.agent
          AND {queue_ahead_filter})
    OR :per_model{as_bigint} IS NOT NULL AND :per_model{as_bigint} <= (
        SELECT count(*) FROM queue AS o
        WHERE o.state = 'working' AND o.model = queue.model AND {queue_ahead_filter}));

-- name: queue_take_threads
-- If two runs of a thread were claimed, only one gets it.
UPDATE threads SET active_run = q.run_id
FROM queue AS q
WHERE q.claim = :claim AND q.state = 'working'
  AND threads.user_id = q.user_id AND threads.id = q.thread_id
  AND (threads.active_run IS NULL OR threads.active_run = q.run_id);

-- name: queue_take_runs
UPDATE runs SET {lease_taken}
FROM queue AS q
WHERE q.claim = :claim AND q.state = 'working' AND runs.user_id = q.user_id AND runs.id = q.run_id
  AND EXISTS (SELECT 1 FROM threads AS t
              WHERE t.user_id = q.user_id AND t.id = q.thread_id AND t.active_run = q.run_id);

-- name: queue_unclaim
UPDATE queue SET state = 'waiting', claim = ''
WHERE claim = :claim AND state = 'working' AND NOT EXISTS (
    SELECT 1 FROM threads AS t
    WHERE t.user_id = queue.user_id AND t.id = queue.thread_id AND t.active_run = queue.run_id);

-- name: queue_claimed
-- The last column counts the workers that were lost without this run, since its first takeover.
SELECT q.user_id, q.run_id, q.thread_id, r.root_run_id, r.epoch, q.takeovers, q.task, q.blame,
       CASE WHEN q.takeovers > 0 THEN {greatest}(0, (
           SELECT count(*) FROM lost_workers AS w WHERE w.lost_at >= q.lost_at - 1) - q.takeovers)
       ELSE 0 END
FROM queue AS q {ordered_join} runs AS r ON r.user_id = q.user_id AND r.id = q.run_id
WHERE q.claim = :claim AND q.state = 'working' AND r.status = 'running'
ORDER BY q.tag, q.enqueued_at;

-- name: hold_run
-- Executed first, because commits and picks lock a run before its row in the queue.
UPDATE runs SET updated_at = updated_at WHERE user_id = :user_id AND id = :run_id;

-- name: queue_blame_taken
-- As `queue_blame`, if a process that is not a worker takes a run; among the runs of this owner
-- only.
WITH lost AS MATERIALIZED (
    SELECT {queue_holder} AS instance, r.user_id AS owner
    FROM queue AS q {ordered_join} runs AS r ON r.user_id = q.user_id AND r.id = q.run_id
    WHERE q.user_id = :user_id AND q.run_id = :run_id AND q.state = 'working'
      AND r.status = 'running' AND r.lease_instance <> :instance),
{queue_share_blame};

-- name: queue_taken_over
-- Counts as a takeover, as a pick does.  Executed before the run's own row changes, because it
-- reads it.
UPDATE queue SET {queue_one_more}
WHERE user_id = :user_id AND run_id = :run_id AND state = 'working' AND EXISTS (
    SELECT 1 FROM runs AS t
    WHERE t.user_id = :user_id AND t.id = :run_id AND t.status = 'running'
      AND t.lease_instance <> :instance);

-- name: queue_working
-- A process that is not a worker may resume a run of the queue, which then counts as at work.
UPDATE queue SET state = 'working', claim = '', blamed = 0
WHERE user_id = :user_id AND run_id = :run_id
RETURNING run_id;

-- name: begin_queued
-- Leaves the budget as it was enqueued.
UPDATE runs
SET agent = :agent, task_id = :task_id, max_steps = :max_steps, spec = :spec,
    own_reserved_tokens = :own_tokens, own_reserved_cost = :own_cost,
    lease_until = {now} + :seconds, updated_at = {now}
WHERE user_id = :user_id AND id = :run_id AND epoch = :epoch AND status = 'running'
  AND task_id IS NULL;

-- name: queue_open_questions
-- The open questions of a run, and of the runs below it that it waits for and that have no place in
-- the queue themselves.
FROM questions AS a
JOIN runs AS b ON b.user_id = a.user_id AND b.id = a.run_id
WHERE a.user_id = :user_id AND a.status = 'open' AND a.expires_at > {now}
  AND (b.id = queue.run_id OR b.root_run_id = queue.run_id AND NOT {queue_apart_filter}
       AND NOT EXISTS (
           SELECT 1 FROM queue AS k WHERE k.user_id = b.user_id AND k.run_id = b.id))

-- name: queue_open_children
-- The child runs that a run waits for: in the queue, and not in the background.
FROM runs AS b JOIN queue AS k ON k.user_id = b.user_id AND k.run_id = b.id
WHERE b.user_id = :user_id AND b.parent_run_id = queue.run_id
  AND b.status IN ('queued', 'running', 'suspended') AND NOT {queue_background_filter}

-- name: queue_settle
-- What becomes of a run that stops.  One that its worker handed over waits.  One that asks a
-- question, waits for child runs or was paused is parked; if its model is unavailable, for a
-- minute.  One that failed is a dead letter, with its cause.
UPDATE queue
SET state = CASE WHEN :status = 'failed' THEN 'dead'
                 WHEN :stop_reason IN ('paused', 'unavailable') THEN 'parked'
                 WHEN :stop_reason <> 'interrupted'
                      AND (EXISTS (SELECT 1 {queue_open_questions})
                           OR EXISTS (SELECT 1 {queue_open_children})) THEN 'parked'
                 ELSE 'waiting' END,
    due_at = CASE WHEN :status = 'failed' OR :stop_reason IN ('paused', 'interrupted') THEN NULL
                  WHEN :stop_reason = 'unavailable' THEN {now} + 60
                  ELSE (SELECT max(a.expires_at) {queue_open_questions}) END,
    takeovers = CASE WHEN takeovers > 0 AND {queue_own_steps} > steps_seen THEN 0
                     ELSE takeovers END,
    blame = CASE WHEN blame > 0 AND {queue_own_steps} > steps_seen THEN 0 ELSE blame END,
    cause = :detail, claim = ''
WHERE user_id = :user_id AND run_id = :run_id AND :status IN ('failed', 'suspended');

-- name: queue_forget
-- A child run that failed leaves the queue too: its parent decides what to do.
DELETE FROM queue
WHERE user_id = :user_id AND run_id = :run_id
  AND (:status IN ('succeeded', 'cancelled') OR :status = 'failed' AND EXISTS (
      SELECT 1 FROM runs AS c
      WHERE c.user_id = :user_id AND c.id = :run_id AND c.parent_run_id IS NOT NULL));

-- name: queue_child_ended
-- Wakes the parent when its last child ends.  The commit holds the lock of the tree, as does a
-- parent that suspends, so one of the two sees the other.
UPDATE queue SET state = 'waiting', due_at = NULL, cause = 'Its child runs have ended.'
WHERE user_id = :user_id AND state = 'parked' AND :status IN ('succeeded', 'failed', 'cancelled')
  AND run_id = (SELECT c.parent_run_id FROM runs AS c
                WHERE c.user_id = :user_id AND c.id = :run_id)
  AND EXISTS (SELECT 1 FROM runs AS p
              WHERE p.user_id = :user_id AND p.id = queue.run_id AND p.status = 'suspended'
                AND p.stop_reason IN ('awaiting_children', 'awaiting_user'))
  AND NOT EXISTS (SELECT 1 {queue_open_questions})
  AND NOT EXISTS (SELECT 1 {queue_open_children});

-- name: queue_advance
-- The next run of the thread waits, if none of the others waits, works or is parked.
UPDATE queue SET state = 'waiting'
WHERE user_id = :user_id AND run_id = (
    SELECT o.run_id FROM queue AS o
    WHERE o.user_id = :user_id AND o.thread_id = :thread_id AND o.state = 'behind'
    ORDER BY o.tag, o.enqueued_at LIMIT 1)
  AND NOT EXISTS (
    SELECT 1 FROM queue AS o
    WHERE o.user_id = :user_id AND o.thread_id = :thread_id
      AND o.state IN ('waiting', 'working', 'parked'));

-- name: queue_answered
-- The commit holds the lock of the tree, as does a run that suspends, so one of the two sees the
-- other.
UPDATE queue SET state = 'waiting', due_at = NULL, cause = 'Its question was answered.'
WHERE user_id = :user_id AND run_id IN (:root_run_id, :run_id) AND state = 'parked'
  AND due_at IS NOT NULL AND NOT EXISTS (SELECT 1 {queue_open_questions})
  AND NOT EXISTS (SELECT 1 {queue_open_children});

-- name: withdraw_queued
-- A run that never began has no task in the log.
UPDATE runs
SET status = 'cancelled', stop_reason = 'cancelled', cancel_requested = 1, finished_at = {now},
    updated_at = {now}
WHERE user_id = :user_id AND id = :run_id AND status = 'queued';

-- name: queue_wake
UPDATE queue
SET state = 'waiting', due_at = NULL, takeovers = 0, blame = 0, cause = :cause,
    tag = {greatest}(tag, :floor{as_double})
WHERE user_id = :user_id AND run_id = :run_id AND state IN ('dead', 'parked', 'delayed');

-- name: queue_postpone
-- Parked, not delayed: unlike a run that was enqueued for later, it may have begun and hold its
-- thread.
UPDATE queue SET state = 'parked', due_at = {now} + :seconds{as_double}, cause = :cause
WHERE user_id = :user_id AND run_id = :run_id AND state = 'waiting';

-- name: queue_drop
DELETE FROM queue WHERE user_id = :user_id AND run_id = :run_id AND state = 'dead';

-- name: queue_select
SELECT q.user_id, q.run_id, q.thread_id, q.program, q.agent, q.version, q.model, q.state, q.share,
       q.tag, q.due_at, q.enqueued_at, q.takeovers, q.cause, r.status,
       CASE WHEN t.active_run <> q.run_id THEN t.active_run END, r.lease_host
FROM queue AS q
{ordered_join} runs AS r ON r.user_id = q.user_id AND r.id = q.run_id
{ordered_join} threads AS t ON t.user_id = q.user_id AND t.id = q.thread_id AND t.hidden = ''

-- name: queue_of_user
{queue_select}
WHERE q.user_id = :user_id AND (:run_id{as_text} IS NULL OR q.run_id = :run_id)
  AND (:state{as_text} IS NULL OR q.state = :state)
ORDER BY q.tag, q.enqueued_at LIMIT :limit;

-- name: queue_of_all
{queue_select}
WHERE (:state{as_text} IS NULL OR q.state = :state)
ORDER BY q.tag, q.enqueued_at LIMIT :limit;

-- name: queue_owners
-- The holders of leases on a machine; a process of that machine can see which of them have died.
SELECT q.user_id, q.run_id, r.epoch, r.lease_host, r.lease_boot, r.lease_pid, r.lease_started,
       r.lease_machine, r.lease_instance
FROM queue AS q {ordered_join} runs AS r ON r.user_id = q.user_id AND r.id = q.run_id
WHERE q.state = 'working' AND r.status = 'running' AND r.lease_until > {now}
  AND r.lease_host = :host AND r.lease_machine = :machine AND r.lease_instance <> :instance;

-- name: queue_expel
UPDATE runs SET lease_until = {now}
WHERE (user_id, id) IN (SELECT r.user_id, r.id {held_leases} {skip_locked});
