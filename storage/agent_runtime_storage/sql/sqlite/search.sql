-- Full text: what is found in the index, ranked by the owner's own figures.
--
-- A text's score is the sum, over the words that it has, of weight * n * 2.2 / (n + norm), where n
-- is how often it has the word: BM25 with k1 = 1.2 and b = 0.75.

-- name: index_text
INSERT INTO search_writer (user_id, thread_id, node_id, call, length, terms)
VALUES (:user_id, :thread_id, :node_id, :call, :length, :terms);

-- name: purge_search
DELETE FROM search_texts WHERE user_id = :user_id AND thread_id = :thread_id;

-- name: search_figures
-- What the owner has in all (under no term), and how many texts have each term.  A term is one
-- owner's, so the vocabulary shows nothing of others.
SELECT '', coalesce(sum(texts), 0), coalesce(sum(length), 0)
FROM search_totals WHERE user_id = :user_id
UNION ALL
SELECT v.term, v.doc, 0
FROM json_each(:terms) AS t CROSS JOIN search_vocabulary AS v ON v.term = t.value;

-- name: search_posted
word (term, weight) AS MATERIALIZED (
    SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(:words)
), posted (id, weight, n) AS (
    SELECT p.doc, w.weight, sum(CAST(p.col AS INTEGER))
    FROM word AS w CROSS JOIN search_postings AS p ON p.term = w.term
    GROUP BY w.term, p.doc
)

-- name: search_scored
SELECT t.thread_id, t.node_id, t.call,
       sum(p.weight * p.n * 2.2 / (p.n + 0.3 + :per_word * t.length)) AS score
FROM posted AS p CROSS JOIN search_texts AS t ON t.id = p.id
WHERE t.user_id = :user_id AND (:thread_id IS NULL OR t.thread_id = :thread_id)
  AND t.thread_id NOT IN (SELECT id FROM threads WHERE user_id = :user_id AND hidden <> '')

-- name: search_best
GROUP BY t.id

-- name: search_order
SELECT thread_id, node_id, call, score FROM scored
ORDER BY round(score, 9) DESC, thread_id, node_id, call LIMIT :limit

-- name: search_any
WITH {search_posted}, scored AS (
    {search_scored}
    {search_best}
)
{search_order};

-- name: search_all
WITH {search_posted}, whole (id) AS MATERIALIZED (
    SELECT rowid FROM search_index WHERE search_index MATCH replace(:terms, ' ', ' AND ')
), scored AS (
    {search_scored}
      AND p.id IN (SELECT id FROM whole)
    {search_best}
)
{search_order};
