-- Observations of a thread.

-- name: observation_blob
LEFT JOIN blobs AS b ON b.user_id = :user_id AND b.thread_id = :thread_id AND b.hash = o.blob
