-- Only SQLite compares the signs of vectors; here nothing changes.

-- name: change_nothing
SELECT 1;
