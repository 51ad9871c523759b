-- What the shared queries spell differently in each dialect.

-- name: now
unixepoch('subsec')

-- name: today_filter
-- Days since the epoch, by UTC.
unixepoch() / 86400

-- name: equals
IS

-- name: differs_from
IS NOT

-- name: greatest
max

-- name: no_bytes
x''

-- name: each_text
json_each

-- name: each_json
json_each

-- name: json_column
json_group_array

-- name: json_data
data

-- name: text_bytes
-- In characters: SQLite before 3.43 has no `octet_length`.
length

-- name: vector_bytes
length

-- name: skip_locked

-- name: ordered_join
-- CROSS JOIN fixes the order of the tables: the planner cannot know how short a chain is, and would
-- scan the whole thread.
CROSS JOIN

-- Values need no types here.

-- name: as_bigint

-- name: as_double

-- name: as_jsonb

-- name: as_text
