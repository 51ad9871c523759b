-- Check and measure a database as a whole.  These queries read the rows of all owners.

-- name: server_version
SELECT 'SQLite ' || sqlite_version();

-- name: thread_ids
-- Threads of sub-agents come last, as a copy of a thread includes them.
SELECT id, child FROM (
    SELECT t.id AS id, EXISTS (
        SELECT 1 FROM runs AS r
        WHERE r.user_id = t.user_id AND r.thread_id = t.id AND r.parent_run_id IS NOT NULL) AS child
    FROM threads AS t WHERE t.user_id = :user_id AND t.hidden = '') AS found
WHERE (child, id) > (:child, :after)
ORDER BY child, id LIMIT :limit;

-- Checks.  Each returns the owner, the thread, and the values for its message.

-- name: check_file
SELECT '', '', quick_check FROM pragma_quick_check WHERE quick_check <> 'ok' LIMIT :limit;

-- name: check_references
SELECT '', '', "table" || coalesce(' row ' || rowid, ''), parent FROM pragma_foreign_key_check
LIMIT :limit;

-- name: size_total
SELECT page_count * page_size FROM pragma_page_count, pragma_page_size;

-- name: size_tables
-- With their indexes.
SELECT coalesce(m.tbl_name, s.name), sum(s.pgsize)
FROM dbstat AS s LEFT JOIN sqlite_schema AS m ON m.name = s.name
GROUP BY 1 ORDER BY 2 DESC, 1;
