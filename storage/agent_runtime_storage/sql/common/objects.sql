-- Objects: bodies outside of the database.  These queries read the rows of all owners.

-- name: room
SELECT name FROM rooms;

-- name: known_objects
SELECT object FROM blobs WHERE object IN (SELECT value FROM {each_text}(:keys{as_jsonb}));

-- name: objects_after
-- Those that begin with `parts/` are in the database.
SELECT object, user_id, thread_id, object_bytes FROM blobs
WHERE object > :after AND substr(object, 1, 6) <> 'parts/'
ORDER BY object LIMIT :limit;
