-- What the shared queries spell differently in each dialect.

-- name: now
unix_seconds()

-- name: today_filter
-- Days since the epoch, by UTC.
floor(unix_seconds() / 86400)::bigint

-- name: equals
IS NOT DISTINCT FROM

-- name: differs_from
IS DISTINCT FROM

-- name: greatest
greatest

-- name: no_bytes
''::bytea

-- name: each_text
jsonb_array_elements_text

-- name: each_json
jsonb_array_elements

-- name: json_column
json_agg

-- name: json_data
data::json

-- name: text_bytes
octet_length

-- name: vector_bytes
pg_column_size

-- name: skip_locked
FOR UPDATE OF r SKIP LOCKED

-- name: ordered_join
JOIN

-- A parameter whose type the statement does not show needs a cast, as do sums, which are numeric.

-- name: as_bigint
::bigint

-- name: as_double
::double precision

-- name: as_jsonb
::jsonb

-- name: as_text
::text
