-- Full-text search; `common/search.sql` explains the ranking.

-- name: index_text
INSERT INTO search_writer (user_id, thread_id, node_id, call, length, terms, version)
VALUES (:user_id, :thread_id, :node_id, :call, :length, :terms, :version);

-- name: reindex_text
UPDATE search_writer SET terms = :terms, version = :version
WHERE user_id = :user_id AND thread_id = :thread_id AND node_id = :node_id AND call = :call
  AND version < 2;

-- name: search_secret
SELECT secret FROM search_secrets;

-- name: purge_search
DELETE FROM search_texts WHERE user_id = :user_id AND thread_id = :thread_id;

-- name: search_figures
-- The owner's totals (under the empty term), and the number of texts with each term, up to `:most`.
-- A term belongs to one owner, so the vocabulary reveals nothing about others.
SELECT '', coalesce(sum(texts), 0), coalesce(sum(length), 0)
FROM search_sums WHERE user_id = :user_id
UNION ALL
SELECT v.term, min(v.doc, :most), 0
FROM json_each(:terms) AS t CROSS JOIN search_vocabulary AS v ON v.term = t.value;

-- name: search_scores_select
-- A column of the index is a bit of the number of times: their sum is that number.  `mark` is the
-- bit of a word of the query; each word comes once for a text, so that the sum has all its bits.
word (term, weight, number, mark) AS MATERIALIZED (
    SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
           json_extract(value, '$[3]')
    FROM json_each(:words)
), posted (id, weight, mark, n) AS (
    SELECT p.doc, w.weight, w.mark, sum(CAST(p.col AS INTEGER))
    FROM word AS w CROSS JOIN search_postings AS p ON p.term = w.term
    GROUP BY w.number, p.doc
), scored (thread_id, node_id, call, id, score, marks) AS (
    SELECT t.thread_id, t.node_id, t.call, t.id,
           sum(p.weight * p.n * 2.2 / (p.n + 0.3 + :per_word * t.length)), sum(p.mark)
    FROM posted AS p CROSS JOIN search_texts AS t ON t.id = p.id
    WHERE t.user_id = :user_id AND (:thread_id IS NULL OR t.thread_id = :thread_id)
    GROUP BY t.id
)

-- name: search_hits_select
SELECT s.thread_id, s.node_id, s.call, s.score, s.marks
FROM scored AS s
WHERE ((SELECT NOT EXISTS (SELECT 1 FROM threads WHERE user_id = :user_id AND hidden <> ''))
       OR s.thread_id NOT IN (SELECT id FROM threads WHERE user_id = :user_id AND hidden <> ''))

-- name: search_any
-- Rounded, so that equal scores stay equal in spite of the order in which they were summed; not by
-- `round`, which writes each number out.
WITH {search_scores_select}
{search_hits_select}
ORDER BY CAST(s.score * 1e9 + 0.5 AS INTEGER) DESC, s.thread_id, s.node_id, s.call LIMIT :limit;

-- name: search_all
WITH {search_scores_select}
{search_hits_select}
  AND s.id IN (
      SELECT rowid FROM search_index WHERE search_index MATCH replace(:terms, ' ', ' AND '))
ORDER BY CAST(s.score * 1e9 + 0.5 AS INTEGER) DESC, s.thread_id, s.node_id, s.call LIMIT :limit;
