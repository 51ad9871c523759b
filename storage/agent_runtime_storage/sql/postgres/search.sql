-- Full text: what is found in the index, ranked by the owner's own figures.
--
-- A text's score is the sum, over the words that it has, of weight * n * 2.2 / (n + norm), where n
-- is how often it has the word, in whatever form: BM25 with k1 = 1.2 and b = 0.75.  The forms of a
-- word are terms with the same number.

-- name: index_text
WITH added AS (
    INSERT INTO search_texts (user_id, thread_id, node_id, call, length)
    VALUES (:user_id, :thread_id, :node_id, :call, :length)
    ON CONFLICT (user_id, thread_id, node_id, call) DO NOTHING
    RETURNING id, user_id, thread_id, length
), indexed AS (
    INSERT INTO search_index (id, length, terms) SELECT id, length, :terms::tsvector FROM added
)
INSERT INTO search_totals AS t (user_id, thread_id, texts, length)
SELECT user_id, thread_id, 1, length FROM added
ON CONFLICT (user_id, thread_id) DO UPDATE
SET texts = t.texts + 1, length = t.length + excluded.length;

-- name: purge_search
WITH totals AS (
    DELETE FROM search_totals WHERE user_id = :user_id AND thread_id = :thread_id
)
DELETE FROM search_texts WHERE user_id = :user_id AND thread_id = :thread_id;

-- name: search_figures
-- What the owner has in all (under no term), and how many texts have each term, counted up to
-- `:most`.  A term is one owner's, so the count tells nothing of others.
SELECT '', coalesce(sum(texts), 0)::bigint, coalesce(sum(length), 0)::bigint
FROM search_totals WHERE user_id = :user_id
UNION ALL
SELECT t.term,
       (SELECT count(*)
        FROM (SELECT FROM search_index WHERE terms @@ t.term::tsquery LIMIT :most) AS held),
       0::bigint
FROM json_array_elements_text(:terms::json) AS t (term);

-- name: search_scores_select
-- Materialized, or a text's terms would be carried along; OFFSET, or the planner, who cannot know
-- how few texts are found, would read those of all owners.
word (query, weight, number) AS MATERIALIZED (
    SELECT (value ->> 0)::tsquery, (value ->> 1)::double precision, (value ->> 2)::integer
    FROM json_array_elements(:words::json)
), posted (id, length, weight, n) AS MATERIALIZED (
    SELECT i.id, min(i.length), min(w.weight), sum(search_times(i.terms, w.query))
    FROM word AS w JOIN search_index AS i ON i.terms @@ w.query
    GROUP BY w.number, i.id
), scored (id, score) AS MATERIALIZED (
    SELECT id, sum(weight * n * 2.2 / (n + 0.3 + :per_word * length)) FROM posted GROUP BY id
)

-- name: search_hits_select
SELECT t.thread_id, t.node_id, t.call, s.score
FROM best AS s CROSS JOIN LATERAL (
    SELECT thread_id, node_id, call FROM search_texts
    WHERE id = s.id AND user_id = :user_id
      AND (:thread_id::text IS NULL OR thread_id = :thread_id::text)
    OFFSET 0
) AS t
WHERE t.thread_id NOT IN (SELECT id FROM threads WHERE user_id = :user_id AND hidden <> '')

-- name: search_any
WITH {search_scores_select}, found AS (SELECT id, score FROM scored), {search_best_select}
{search_hits_select}
ORDER BY round(s.score::numeric, 9) DESC, t.thread_id, t.node_id, t.call LIMIT :limit;

-- name: search_all
WITH {search_scores_select}, found (id, score) AS (
    SELECT id, score FROM scored
    WHERE id IN (SELECT id FROM search_index WHERE terms @@ replace(:terms, ' ', ' & ')::tsquery)
), {search_best_select}
{search_hits_select}
ORDER BY round(s.score::numeric, 9) DESC, t.thread_id, t.node_id, t.call LIMIT :limit;

-- name: search_best_select
-- Where nothing else is to be looked at, only as many as are wanted, and those that equal the last.
best (id, score) AS MATERIALIZED (
    SELECT id, score FROM found ORDER BY round(score::numeric, 9) DESC
    FETCH FIRST (
        SELECT CASE WHEN :thread_id::text IS NULL AND NOT EXISTS (
                        SELECT FROM threads WHERE user_id = :user_id AND hidden <> '')
                    THEN :limit::bigint ELSE 9223372036854775807 END
    ) ROWS WITH TIES
)
