-- Full text: what is found in the index, ranked by the owner's own figures.
--
-- A text's score is the sum, over the words that it has, of weight * n * 2.2 / (n + norm), where n
-- is how often it has the word, in whatever form: BM25 with k1 = 1.2 and b = 0.75.  The forms of a
-- word are terms with the same number.

-- name: index_text
INSERT INTO search_writer (user_id, thread_id, node_id, call, length, terms)
VALUES (:user_id, :thread_id, :node_id, :call, :length, :terms);

-- name: purge_search
DELETE FROM search_texts WHERE user_id = :user_id AND thread_id = :thread_id;

-- name: search_figures
-- What the owner has in all (under no term), and how many texts have each term, counted up to
-- `:most`.  A term is one owner's, so the vocabulary shows nothing of others.
SELECT '', coalesce(sum(texts), 0), coalesce(sum(length), 0)
FROM search_totals WHERE user_id = :user_id
UNION ALL
SELECT v.term, min(v.doc, :most), 0
FROM json_each(:terms) AS t CROSS JOIN search_vocabulary AS v ON v.term = t.value;

-- name: search_scores_select
word (term, weight, number) AS MATERIALIZED (
    SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]')
    FROM json_each(:words)
), posted (id, weight, n) AS (
    SELECT p.doc, w.weight, sum(CAST(p.col AS INTEGER))
    FROM word AS w CROSS JOIN search_postings AS p ON p.term = w.term
    GROUP BY w.number, p.doc
), scored (thread_id, node_id, call, id, score) AS (
    SELECT t.thread_id, t.node_id, t.call, t.id,
           sum(p.weight * p.n * 2.2 / (p.n + 0.3 + :per_word * t.length))
    FROM posted AS p CROSS JOIN search_texts AS t ON t.id = p.id
    WHERE t.user_id = :user_id AND (:thread_id IS NULL OR t.thread_id = :thread_id)
    GROUP BY t.id
)

-- name: search_hits_select
SELECT s.thread_id, s.node_id, s.call, s.score
FROM scored AS s
WHERE s.thread_id NOT IN (SELECT id FROM threads WHERE user_id = :user_id AND hidden <> '')

-- name: search_any
WITH {search_scores_select}
{search_hits_select}
ORDER BY round(s.score, 9) DESC, s.thread_id, s.node_id, s.call LIMIT :limit;

-- name: search_all
WITH {search_scores_select}
{search_hits_select}
  AND s.id IN (
      SELECT rowid FROM search_index WHERE search_index MATCH replace(:terms, ' ', ' AND '))
ORDER BY round(s.score, 9) DESC, s.thread_id, s.node_id, s.call LIMIT :limit;
