-- The inbox, the events and the usage of threads.

-- name: usage_sums
count(*), coalesce(sum(prompt_tokens), 0)::bigint, coalesce(sum(cached_tokens), 0)::bigint,
       coalesce(sum(cache_write_tokens), 0)::bigint, coalesce(sum(completion_tokens), 0)::bigint,
       coalesce(sum(cost), 0)::bigint, count(*) FILTER (WHERE cost IS NULL),
       count(*) FILTER (WHERE reported = 0)
