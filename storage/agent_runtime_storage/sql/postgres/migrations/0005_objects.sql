-- Blobs whose content is an object outside of the database: the row keeps the key and the length,
-- and no data.

-- name: add_object
ALTER TABLE blobs ADD COLUMN object text COLLATE "C" CHECK (object IS NULL OR length(data) = 0);

-- name: add_object_bytes
ALTER TABLE blobs ADD COLUMN object_bytes bigint
    CHECK ((object_bytes IS NULL) = (object IS NULL));

-- name: index_blobs_by_object
CREATE INDEX blobs_by_object ON blobs (object) WHERE object IS NOT NULL;

-- name: create_rooms
-- What tells the objects of this database from those of others in the same store.  It belongs to
-- no owner, and is no secret.
CREATE TABLE rooms (name text NOT NULL PRIMARY KEY CHECK (name <> ''));

-- name: share_rooms
GRANT SELECT ON rooms TO PUBLIC;

-- name: choose_room
INSERT INTO rooms (name) VALUES (replace(gen_random_uuid()::text, '-', ''));
