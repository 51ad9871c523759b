-- Observations of a thread.

-- name: observation_blob
LEFT JOIN LATERAL (
    SELECT * FROM blobs
    WHERE user_id = :user_id AND thread_id = :thread_id AND hash = o.blob OFFSET 0) AS b ON true
