-- Rate limits that processes share: each renews its rows once a period, and reads those of others.

-- name: rate_forget
-- Rows of processes that have died, or stopped asking.
DELETE FROM rate_shares
WHERE place IN (SELECT value ->> 0 FROM {each_json}(:rows{as_jsonb}))
  AND renewed_at < {now} - :seconds{as_double};

-- name: rate_renew
-- Each row is an array: place, figures.
INSERT INTO rate_shares (place, process, renewed_at, figures)
SELECT value ->> 0, :process{as_text}, {now}, value ->> 1
-- Without the WHERE, SQLite reads the ON of ON CONFLICT as that of a join.
FROM {each_json}(:rows{as_jsonb}) WHERE true
ON CONFLICT (place, process) DO UPDATE
SET renewed_at = excluded.renewed_at, figures = excluded.figures;

-- name: rate_rows
SELECT place, process, {now}, {now} - renewed_at, figures FROM rate_shares
WHERE place IN (SELECT value ->> 0 FROM {each_json}(:rows{as_jsonb}))
ORDER BY place, process;

-- name: rate_leave
DELETE FROM rate_shares WHERE process = :process;
