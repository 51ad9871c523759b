-- Objects: bodies outside of the database.  These queries read the rows of all owners.

-- name: room
SELECT name FROM rooms;

-- name: known_objects
SELECT object FROM blobs WHERE object IN (SELECT value FROM {each_text}(:keys{as_jsonb}));

-- name: objects_after
SELECT object, user_id, thread_id, object_bytes FROM blobs
WHERE object > :after
ORDER BY object LIMIT :limit;
