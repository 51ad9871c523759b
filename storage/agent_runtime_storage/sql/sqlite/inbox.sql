-- The inbox, the events and the usage of threads.

-- name: usage_sums
count(*), coalesce(sum(prompt_tokens), 0), coalesce(sum(cached_tokens), 0),
       coalesce(sum(cache_write_tokens), 0), coalesce(sum(completion_tokens), 0),
       coalesce(sum(cost), 0), coalesce(sum(cost IS NULL), 0), coalesce(sum(reported = 0), 0)
