-- Files that messages refer to.

-- name: touch_thread
-- Misses on a hidden thread; on any other the row's lock keeps a deletion from beginning meanwhile.
UPDATE threads SET updated_at = {now}
WHERE user_id = :user_id AND id = :thread_id AND hidden = '';

-- name: put_file
INSERT INTO files (user_id, thread_id, id, kind, origin, name, media_type, bytes, blob, created_at)
VALUES (:user_id, :thread_id, :id, :kind, :origin, :name, :media_type, :bytes, :blob, {now})
ON CONFLICT (user_id, thread_id, id) DO NOTHING;

-- name: file_columns
f.thread_id, f.id, f.kind, f.origin, f.name, f.media_type, f.bytes, f.created_at

-- name: shown_filter
JOIN threads AS t ON t.user_id = f.user_id AND t.id = f.thread_id AND t.hidden = ''

-- name: files_of_thread
SELECT {file_columns}
FROM files AS f {shown_filter}
WHERE f.user_id = :user_id AND f.thread_id = :thread_id
ORDER BY f.id;

-- name: files_by_id
-- Copies of a thread have files with the same ids and the same content; the oldest comes first.
SELECT {file_columns}
FROM files AS f {shown_filter}
WHERE f.user_id = :user_id AND f.id IN (SELECT value FROM {each_text}(:ids{as_jsonb}))
ORDER BY f.id, f.created_at, f.thread_id;

-- name: file_body
SELECT {no_bytes}, coalesce(b.object, b.codec, 'lost'), b.data
FROM files AS f {shown_filter}
LEFT JOIN blobs AS b
    ON b.user_id = f.user_id AND b.thread_id = f.thread_id AND b.hash = f.blob
WHERE f.user_id = :user_id AND f.thread_id = :thread_id AND f.id = :id;
