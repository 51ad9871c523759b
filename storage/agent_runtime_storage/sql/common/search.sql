-- Full-text search, ranked by the owner's own statistics.
--
-- A text's score is the sum, over the words that it has, of weight * n * 2.2 / (n + norm), where n
-- is the number of times that it has the word, in any form: BM25 with k1 = 1.2 and b = 0.75.  The
-- forms of a word are terms with the same number.

-- name: outdated_texts
-- The owner's texts that an earlier version indexed.  The number is the current version, written
-- out, as the index on them is partial.
SELECT thread_id, node_id, call FROM search_texts
WHERE user_id = :user_id AND version < 2
ORDER BY thread_id, node_id, call LIMIT :limit;

-- name: mark_text
-- A text whose terms have not changed since the version that indexed it.
UPDATE search_texts SET version = :version
WHERE user_id = :user_id AND thread_id = :thread_id AND node_id = :node_id AND call = :call
  AND version < 2;

-- name: count_outdated_texts
-- Of all owners.
SELECT count(*) FROM search_texts WHERE version < 2;

-- name: owners_of_outdated_texts
SELECT DISTINCT user_id FROM search_texts WHERE version < 2 ORDER BY user_id;
