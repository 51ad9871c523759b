-- The joins of blobs for an export.

-- name: section_blob_columns
LEFT JOIN blobs AS b
    ON b.user_id = x.user_id AND b.thread_id = x.thread_id AND b.hash = x.blob

-- name: output_blob
LEFT JOIN blobs AS b
    ON b.user_id = x.user_id AND b.thread_id = x.thread_id AND b.hash = x.output_blob

-- name: prefix_blob
LEFT JOIN blobs AS p
    ON p.user_id = x.user_id AND p.thread_id = x.thread_id AND p.hash = x.prefix_blob
