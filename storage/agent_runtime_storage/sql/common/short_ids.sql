-- Rows whose id begins or ends with a text.

-- name: find_threads
-- `!` marks a `%` or `_` of the text, which would stand for other characters.
SELECT t.id, t.title, t.updated_at FROM threads AS t
WHERE t.user_id = :user_id AND t.hidden = ''
  AND (lower(t.id) LIKE :prefix ESCAPE '!' OR lower(t.id) LIKE :suffix ESCAPE '!')
ORDER BY t.updated_at DESC, t.id DESC LIMIT :limit;

-- name: find_runs
SELECT r.id, t.title, r.created_at FROM runs AS r
JOIN threads AS t ON t.user_id = r.user_id AND t.id = r.thread_id AND t.hidden = ''
WHERE r.user_id = :user_id
  AND (lower(r.id) LIKE :prefix ESCAPE '!' OR lower(r.id) LIKE :suffix ESCAPE '!')
ORDER BY r.created_at DESC, r.id DESC LIMIT :limit;

-- name: find_questions
SELECT q.id, t.title, q.asked_at FROM questions AS q
JOIN threads AS t ON t.user_id = q.user_id AND t.id = q.thread_id AND t.hidden = ''
WHERE q.user_id = :user_id
  AND (lower(q.id) LIKE :prefix ESCAPE '!' OR lower(q.id) LIKE :suffix ESCAPE '!')
ORDER BY q.asked_at DESC, q.id DESC LIMIT :limit;
