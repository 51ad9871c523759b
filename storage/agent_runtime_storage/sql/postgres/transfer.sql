-- The joins of blobs for an export.  With old statistics a plain join would be planned over all
-- blobs of the thread.

-- name: section_blob_columns
LEFT JOIN LATERAL (
    SELECT * FROM blobs
    WHERE user_id = :user_id AND thread_id = :thread_id AND hash = x.blob LIMIT 1
) AS b ON true

-- name: output_blob
LEFT JOIN LATERAL (
    SELECT * FROM blobs
    WHERE user_id = :user_id AND thread_id = :thread_id AND hash = x.output_blob LIMIT 1
) AS b ON true

-- name: prefix_blob
LEFT JOIN LATERAL (
    SELECT * FROM blobs
    WHERE user_id = :user_id AND thread_id = :thread_id AND hash = x.prefix_blob LIMIT 1
) AS p ON true
