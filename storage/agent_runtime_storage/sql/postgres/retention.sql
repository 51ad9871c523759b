-- Delete threads.  `:threads` is a JSON list: a thread and those of its runs' child runs.

-- name: family
-- A thread and, in any order, those of its runs' child runs, whether hidden or not.
WITH RECURSIVE family (id) AS (
    SELECT :thread_id::text COLLATE "C"
    UNION
    SELECT child.thread_id
    FROM family AS f
    JOIN runs AS r ON r.user_id = :user_id AND r.thread_id = f.id
    JOIN runs AS child ON child.user_id = :user_id AND child.parent_run_id = r.id
)
SELECT t.id, t.hidden, t.last_seq, t.last_activation, t.last_event, t.last_usage
FROM family AS f
JOIN threads AS t ON t.user_id = :user_id AND t.id = f.id;
