-- Delete threads.  `:threads` is a JSON list: a thread and those of its runs' child runs.

-- name: family_filter
(SELECT value FROM {each_text}(:threads{as_jsonb}))

-- name: family_roots
-- Their trees are locked while the family is deleted, so that none of them begins a child meanwhile.
SELECT DISTINCT root_run_id FROM runs
WHERE user_id = :user_id AND thread_id IN {family_filter};

-- name: family_at_work
-- A run whose lease has expired belongs to a dead process and does not protect its thread.
SELECT thread_id, id FROM runs
WHERE user_id = :user_id AND thread_id IN {family_filter}
  AND status IN ('queued', 'running', 'suspended') AND lease_until > {now}
ORDER BY created_at LIMIT 1;

-- name: require_idle_family
SELECT 1 WHERE NOT EXISTS ({family_at_work_any});

-- name: family_at_work_any
SELECT 1 FROM runs
WHERE user_id = :user_id AND thread_id IN {family_filter}
  AND status IN ('queued', 'running', 'suspended') AND lease_until > {now}

-- name: require_whole_family
-- Misses if a run of the family has started a child on a new thread since the family was read.
SELECT 1 WHERE NOT EXISTS (
    SELECT 1 FROM runs AS r
    JOIN runs AS child ON child.user_id = r.user_id AND child.parent_run_id = r.id
    WHERE r.user_id = :user_id AND r.thread_id IN {family_filter}
      AND child.thread_id NOT IN {family_filter});

-- name: hide_family
-- Also takes over an earlier deletion, which then misses at its own token.  `head` and `active_run`
-- refer to rows that are deleted before the thread.
UPDATE threads
SET hidden = :token, head = NULL, active_run = NULL, updated_at = {now}
WHERE user_id = :user_id AND id IN {family_filter}
  AND (hidden = '' OR hidden LIKE 'delete %' OR :abandoned = 1)
  AND (:thread_id <> id OR :unchanged_since{as_double} IS NULL OR updated_at < :unchanged_since);

-- name: require_hidden
-- The new time shows that the deletion makes progress, so that `clean_up` leaves it alone.
UPDATE threads SET updated_at = {now}
WHERE user_id = :user_id AND id IN {family_filter} AND hidden = :token;

-- name: unsettle_family
-- As `unsettle_own`, for dead runs of the family whose root stays.
UPDATE runs AS root
SET tree_reserved_tokens = root.tree_reserved_tokens - own.tokens,
    tree_reserved_cost = root.tree_reserved_cost - own.cost,
    tree_unsettled_tokens = root.tree_unsettled_tokens + own.tokens,
    tree_unsettled_cost = root.tree_unsettled_cost + own.cost
FROM (SELECT root_run_id, sum(own_reserved_tokens){as_bigint} AS tokens,
             sum(own_reserved_cost){as_bigint} AS cost
      FROM runs WHERE user_id = :user_id AND thread_id IN {family_filter}
      GROUP BY root_run_id) AS own
WHERE root.user_id = :user_id AND root.id = own.root_run_id
  AND root.thread_id NOT IN {family_filter};

-- name: unlink_runs
-- They refer to nodes and blobs, which are deleted before them.
UPDATE runs SET open_node = NULL, output_blob = NULL, own_reserved_tokens = 0, own_reserved_cost = 0
WHERE user_id = :user_id AND thread_id IN {family_filter};

-- name: unlink_inbox
-- Items that the family's runs posted to other threads stay.
UPDATE inbox SET run_id = NULL
WHERE user_id = :user_id AND thread_id NOT IN {family_filter} AND run_id IN (
    SELECT id FROM runs WHERE user_id = :user_id AND thread_id IN {family_filter});

-- name: purge_queue
DELETE FROM queue WHERE user_id = :user_id AND thread_id IN {family_filter};

-- name: purge_inbox
DELETE FROM inbox WHERE user_id = :user_id AND thread_id IN {family_filter};

-- name: purge_files
DELETE FROM files WHERE user_id = :user_id AND thread_id IN {family_filter};

-- name: purge_questions
DELETE FROM questions WHERE user_id = :user_id AND thread_id IN {family_filter};

-- name: purge_approvals
DELETE FROM approvals WHERE user_id = :user_id AND thread_id IN {family_filter};

-- name: purge_jobs
DELETE FROM jobs WHERE user_id = :user_id AND thread_id IN {family_filter};

-- name: purge_texts
DELETE FROM search_texts
WHERE user_id = :user_id AND thread_id IN {family_filter} AND node_id > :after;

-- name: purge_totals
-- `ON DELETE CASCADE` does nothing while the checks of foreign keys are off.
DELETE FROM search_totals WHERE user_id = :user_id AND thread_id IN {family_filter};

-- name: purge_events
DELETE FROM events
WHERE user_id = :user_id AND thread_id IN {family_filter} AND id > :after;

-- name: purge_usage
DELETE FROM usage
WHERE user_id = :user_id AND thread_id IN {family_filter} AND id > :after;

-- name: purge_observations
DELETE FROM observations
WHERE user_id = :user_id AND thread_id IN {family_filter} AND id > :after;

-- name: purge_plans
DELETE FROM plans
WHERE user_id = :user_id AND thread_id IN {family_filter} AND id > :after;

-- name: purge_activations
DELETE FROM activations
WHERE user_id = :user_id AND thread_id IN {family_filter} AND id > :after;

-- name: purge_calls
DELETE FROM calls
WHERE user_id = :user_id AND thread_id IN {family_filter} AND node_id > :after;

-- name: purge_nodes
DELETE FROM nodes
WHERE user_id = :user_id AND thread_id IN {family_filter} AND id > :after;

-- name: purge_runs
DELETE FROM runs WHERE user_id = :user_id AND thread_id IN {family_filter};

-- name: trim_blobs
DELETE FROM blobs
WHERE user_id = :user_id AND thread_id = :thread_id AND hash IN (
    -- Neither Postgres nor every build of SQLite has DELETE with a LIMIT.
    SELECT hash FROM blobs WHERE user_id = :user_id AND thread_id = :thread_id LIMIT :limit)
RETURNING 1;

-- name: purge_blobs
DELETE FROM blobs WHERE user_id = :user_id AND thread_id IN {family_filter};

-- name: purge_threads
DELETE FROM threads WHERE user_id = :user_id AND id IN {family_filter} AND hidden = :token;

-- name: idle_threads
-- Threads of sub-agents are deleted with the thread that they worked for.
SELECT {thread_columns}
FROM threads AS t
WHERE user_id = :user_id AND updated_at < {now} - :seconds AND hidden = ''
  AND NOT EXISTS (
      SELECT 1 FROM runs AS r
      WHERE r.user_id = :user_id AND r.thread_id = t.id
        AND (r.parent_run_id IS NOT NULL
             OR r.status IN ('queued', 'running', 'suspended')
                AND r.lease_until > {now}))
  -- A run may be put off for longer than that.
  AND NOT EXISTS (
      SELECT 1 FROM queue AS q
      WHERE q.user_id = t.user_id AND q.thread_id = t.id AND q.state <> 'dead')
ORDER BY updated_at, id LIMIT :limit;

-- name: cut_short
-- Threads whose deletion or import was interrupted.
SELECT id FROM threads
WHERE user_id = :user_id AND hidden <> '' AND updated_at < {now} - :seconds
ORDER BY id;
