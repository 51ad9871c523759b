-- Only Postgres has rights within a database; here nothing changes.

-- name: change_nothing
SELECT 1;
