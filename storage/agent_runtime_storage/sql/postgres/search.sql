-- Full-text search; `common/search.sql` explains the ranking.

-- name: index_text
WITH added AS (
    INSERT INTO search_texts (user_id, thread_id, node_id, call, length, version)
    VALUES (:user_id, :thread_id, :node_id, :call, :length, :version)
    ON CONFLICT (user_id, thread_id, node_id, call) DO NOTHING
    RETURNING id, user_id, thread_id, length
), indexed AS MATERIALIZED (
    SELECT id, search_add(id, :terms::tsvector) FROM added
)
INSERT INTO search_totals AS t (user_id, thread_id, texts, length)
SELECT user_id, thread_id, 1, length FROM added JOIN indexed USING (id)
ON CONFLICT (user_id, thread_id) DO UPDATE
SET texts = t.texts + 1, length = t.length + excluded.length;

-- name: search_secret
SELECT search_secret();

-- name: reindex_text
WITH outdated AS (
    UPDATE search_texts SET version = :version
    WHERE user_id = :user_id AND thread_id = :thread_id AND node_id = :node_id AND call = :call
      AND version < 2
    RETURNING id
)
SELECT search_rewrite(id, :terms::tsvector) FROM outdated;

-- name: purge_search
WITH totals AS (
    DELETE FROM search_totals WHERE user_id = :user_id AND thread_id = :thread_id
)
DELETE FROM search_texts WHERE user_id = :user_id AND thread_id = :thread_id;

-- name: search_figures
-- The owner's totals (under the empty term), and the number of texts with each term, up to `:most`.
-- A term belongs to one owner, so the count reveals nothing about others.
SELECT '', coalesce(sum(texts), 0)::bigint, coalesce(sum(length), 0)::bigint
FROM search_sums WHERE user_id = :user_id
UNION ALL
SELECT t.term,
       search_count(t.term, :most),
       0::bigint
FROM json_array_elements_text(:terms::json) AS t (term);

-- name: search_scores_select
-- The functions show the owner's rows only; see their migration.  OFFSET in the next block, as
-- the planner cannot know how few texts are found and would read those of all owners.
word (term, weight, number, mark) AS MATERIALIZED (
    SELECT value ->> 0, (value ->> 1)::double precision, (value ->> 2)::integer,
           (value ->> 3)::bigint
    FROM json_array_elements(:words::json)
), posted (id, length, weight, mark, n) AS MATERIALIZED (
    SELECT m.id, min(m.length), min(w.weight), min(w.mark), sum(m.times)
    FROM word AS w CROSS JOIN LATERAL search_matches(w.term) AS m
    GROUP BY w.number, m.id
), scored (id, score, marks) AS MATERIALIZED (
    SELECT id, sum(weight * n * 2.2 / (n + 0.3 + :per_word * length)), bit_or(mark)
    FROM posted GROUP BY id
)

-- name: search_text_select
(
    SELECT thread_id, node_id, call FROM search_texts
    WHERE id = s.id AND user_id = :user_id
      AND (:thread_id::text IS NULL OR thread_id = :thread_id::text)
      AND thread_id NOT IN (SELECT id FROM threads WHERE user_id = :user_id AND hidden <> '')
    OFFSET 0
)

-- name: search_hits_select
-- Begins with the best texts, and those that tie with the last of them.  More are taken where only
-- some of them count: for one thread, or if threads are hidden.  If too few are left, the others
-- follow.
best (id, score, marks) AS MATERIALIZED (
    SELECT id, score, marks FROM found ORDER BY round(score::numeric, 9) DESC
    FETCH FIRST (
        SELECT CASE WHEN :thread_id::text IS NULL AND NOT EXISTS (
                        SELECT FROM threads WHERE user_id = :user_id AND hidden <> '')
                    THEN :limit::bigint ELSE 8 * least(:limit::bigint, 1000000) END
    ) ROWS WITH TIES
), likely AS MATERIALIZED (
    SELECT t.thread_id, t.node_id, t.call, s.score, s.marks
    FROM best AS s CROSS JOIN LATERAL {search_text_select} AS t
), hits AS (
    SELECT thread_id, node_id, call, score, marks FROM likely
    UNION ALL
    SELECT t.thread_id, t.node_id, t.call, s.score, s.marks
    FROM (
        SELECT id, score, marks FROM found
        WHERE (SELECT count(*) FROM likely) < :limit::bigint AND id NOT IN (SELECT id FROM best)
    ) AS s CROSS JOIN LATERAL {search_text_select} AS t
)
-- Rounded, so that equal scores stay equal in spite of the order in which they were summed.
SELECT thread_id, node_id, call, score, marks FROM hits
ORDER BY round(score::numeric, 9) DESC, thread_id, node_id, call LIMIT :limit

-- name: search_any
WITH {search_scores_select}, found AS MATERIALIZED (SELECT * FROM scored),
{search_hits_select};

-- name: search_all
WITH {search_scores_select}, found AS MATERIALIZED (
    SELECT * FROM scored
    WHERE id IN (SELECT search_holders(replace(:terms, ' ', ' & ')::tsquery))
),
{search_hits_select};
