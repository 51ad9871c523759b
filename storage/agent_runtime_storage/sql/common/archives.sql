-- Archived threads, and what has to hold when one is archived.

-- name: archive_columns
thread_id, title, created_at, updated_at, archived_at, place, digests, threads, records, bytes,
stored_bytes

-- name: archive
SELECT {archive_columns} FROM archives WHERE user_id = :user_id AND thread_id = :thread_id;

-- name: archives
-- After a moment and an id, which tells those of one moment apart.
SELECT {archive_columns} FROM archives
WHERE user_id = :user_id
  AND (:before{as_double} IS NULL OR (archived_at, thread_id) < (:before{as_double}, :before_id))
ORDER BY archived_at DESC, thread_id DESC LIMIT :limit;

-- name: require_archivable
-- A run that is not over, a job that a process works on, and a run in the queue need the thread.
SELECT 1 WHERE NOT EXISTS (SELECT 1 {archive_active_runs})
  AND NOT EXISTS (SELECT 1 {archive_claimed_jobs})
  AND NOT EXISTS (SELECT 1 {archive_queued_runs})
  AND NOT EXISTS (SELECT 1 {archive_outer_runs})
  AND NOT EXISTS (SELECT 1 {archive_sent_items});

-- name: archive_active_runs
FROM runs AS r
WHERE r.user_id = :user_id AND r.thread_id IN {family_filter}
  AND r.status IN ('queued', 'running', 'suspended')

-- name: archive_claimed_jobs
FROM jobs AS j
WHERE j.user_id = :user_id AND j.thread_id IN {family_filter} AND j.status = 'claimed'
  AND j.due_at > {now}

-- name: archive_queued_runs
FROM queue AS q WHERE q.user_id = :user_id AND q.thread_id IN {family_filter}

-- name: archive_outer_runs
-- The thread of a sub-agent belongs to the thread that it worked for.
FROM runs AS r JOIN runs AS p ON p.user_id = r.user_id AND p.id = r.parent_run_id
WHERE r.user_id = :user_id AND r.thread_id IN {family_filter}
  AND p.thread_id NOT IN {family_filter}

-- name: archive_sent_items
-- A message of one of its runs that waits on another thread names the run.
FROM runs AS r JOIN inbox AS i ON i.user_id = r.user_id AND i.run_id = r.id
WHERE r.user_id = :user_id AND r.thread_id IN {family_filter}
  AND i.thread_id NOT IN {family_filter}

-- name: archive_obstacle
-- The first reason why a family cannot be archived: its kind, the thread, and an id.
SELECT kind, thread_id, id FROM (
    SELECT 1 AS place, 'active' AS kind, r.thread_id AS thread_id, r.id AS id {archive_active_runs}
    UNION ALL
    SELECT 2, 'child', r.thread_id, p.thread_id {archive_outer_runs}
    UNION ALL
    SELECT 3, 'queued', q.thread_id, q.run_id {archive_queued_runs}
    UNION ALL
    SELECT 4, 'job', j.thread_id, j.kind {archive_claimed_jobs}
    UNION ALL
    SELECT 5, 'inbox', r.thread_id, i.thread_id {archive_sent_items}
) AS found ORDER BY place LIMIT 1;

-- name: archive_stamp_of
-- These values change with every change of what is archived of a thread.
SELECT t.id AS id, t.updated_at AS v0, t.head AS v1, t.last_seq AS v2, t.last_activation AS v3,
       t.last_event AS v4, t.last_inbox AS v5, t.last_usage AS v6, t.created_at AS v7,
       (SELECT max(updated_at) FROM runs WHERE user_id = t.user_id AND thread_id = t.id) AS v8,
       (SELECT count(*) FROM inbox WHERE user_id = t.user_id AND thread_id = t.id) AS v9,
       (SELECT count(*) FROM jobs WHERE user_id = t.user_id AND thread_id = t.id) AS v10,
       (SELECT count(finished_at) FROM jobs
        WHERE user_id = t.user_id AND thread_id = t.id) AS v11,
       (SELECT sum(attempts){as_bigint} FROM jobs
        WHERE user_id = t.user_id AND thread_id = t.id) AS v12,
       (SELECT max(due_at) FROM jobs WHERE user_id = t.user_id AND thread_id = t.id) AS v13,
       (SELECT count(*) FROM vectors WHERE user_id = t.user_id AND thread_id = t.id) AS v14,
       (SELECT count(*) FROM files WHERE user_id = t.user_id AND thread_id = t.id) AS v15,
       (SELECT count(*) FROM approvals WHERE user_id = t.user_id AND thread_id = t.id) AS v16,
       (SELECT count(*) FROM questions WHERE user_id = t.user_id AND thread_id = t.id) AS v17
FROM threads AS t

-- name: archive_stamp
{archive_stamp_of}
WHERE t.user_id = :user_id AND t.id IN {family_filter} AND t.hidden = ''
ORDER BY t.id;

-- name: require_stamp
-- Compared here and not by the caller: a commit may come between its read and the archive's.
SELECT 1 FROM (
    {archive_stamp_of} WHERE t.user_id = :user_id AND t.id = :id AND t.hidden = '') AS now
WHERE v0 = :v0{as_double} AND v1 {equals} :v1{as_bigint} AND v2 = :v2 AND v3 = :v3 AND v4 = :v4
  AND v5 = :v5 AND v6 = :v6 AND v7 = :v7{as_double} AND v8 {equals} :v8{as_double} AND v9 = :v9
  AND v10 = :v10 AND v11 = :v11 AND v12 {equals} :v12{as_bigint}
  AND v13 {equals} :v13{as_double} AND v14 = :v14 AND v15 = :v15 AND v16 = :v16 AND v17 = :v17;

-- name: hold_thread
-- An update, because the commits that allocate ids of the thread wait for its row.
UPDATE threads SET updated_at = updated_at
WHERE user_id = :user_id AND id IN {family_filter} AND hidden = '';

-- name: keep_archive
INSERT INTO archives (user_id, thread_id, title, created_at, updated_at, archived_at, place,
                      digests, threads, records, bytes, stored_bytes)
VALUES (:user_id, :thread_id, :title, :created_at, :updated_at,
        coalesce(:archived_at{as_double}, {now}), :place, :digests, :threads, :records, :bytes,
        :stored_bytes);

-- name: require_no_thread
SELECT 1 WHERE NOT EXISTS (
    SELECT 1 FROM threads WHERE user_id = :user_id AND id = :thread_id);

-- name: forget_archive
DELETE FROM archives WHERE user_id = :user_id AND thread_id = :thread_id AND place = :place;

-- name: archivable_threads
-- A run that waits for a person keeps its thread from being archived, however long it waits.
SELECT {thread_columns}
FROM threads AS t
WHERE user_id = :user_id AND updated_at < {now} - :seconds AND hidden = ''
  AND NOT EXISTS (
      SELECT 1 FROM runs AS r
      WHERE r.user_id = :user_id AND r.thread_id = t.id
        AND (r.parent_run_id IS NOT NULL OR r.status IN ('queued', 'running', 'suspended')))
  AND NOT EXISTS (
      SELECT 1 FROM queue AS q WHERE q.user_id = t.user_id AND q.thread_id = t.id)
ORDER BY updated_at, id LIMIT :limit;

-- These read the rows of all owners.

-- name: archives_of_all
SELECT user_id, thread_id, place, digests, stored_bytes FROM archives
WHERE place > :after ORDER BY place LIMIT :limit;

-- name: known_archives
SELECT place FROM archives WHERE place IN (SELECT value FROM {each_text}(:places{as_jsonb}));
