-- The signs of vectors in blocks: a search reads one row for hundreds of vectors, where it read a
-- row for each.  New vectors wait in rows of their own until their thread has enough for a block.

-- name: create_waiting_vectors
-- The signs are NULL as long as those in `vectors` are.
CREATE TABLE waiting_vectors (
    user_id    TEXT    NOT NULL,
    model      TEXT    NOT NULL,
    thread_id  TEXT    NOT NULL,
    source     TEXT    NOT NULL,
    source_id  INTEGER NOT NULL,
    part       INTEGER NOT NULL,
    signs      BLOB,
    PRIMARY KEY (user_id, model, thread_id, source, source_id, part)
) STRICT, WITHOUT ROWID;

-- name: create_vector_blocks
-- A block has all vectors of its thread and source that do not wait, from `first` to `last`.
CREATE TABLE vector_blocks (
    id         INTEGER PRIMARY KEY,
    user_id    TEXT    NOT NULL,
    model      TEXT    NOT NULL,
    thread_id  TEXT    NOT NULL,
    source     TEXT    NOT NULL,
    first      INTEGER NOT NULL,
    last       INTEGER NOT NULL,
    -- For each vector twelve bytes, big-endian: its source id in eight, its part in four.
    keys       BLOB    NOT NULL,
    -- In the same order; all of one length.
    signs      BLOB    NOT NULL
) STRICT;

-- name: index_vector_blocks
CREATE INDEX vector_blocks_by_source
ON vector_blocks (user_id, model, thread_id, source, first, last);

-- name: fill_waiting_vectors
INSERT INTO waiting_vectors (user_id, model, thread_id, source, source_id, part, signs)
SELECT user_id, model, thread_id, source, source_id, part, signs FROM vectors;

-- name: drop_vectors_by_signs
DROP INDEX vectors_by_signs;

-- name: trigger_vector_added
CREATE TRIGGER vector_added AFTER INSERT ON vectors
BEGIN
    INSERT INTO waiting_vectors (user_id, model, thread_id, source, source_id, part, signs)
    VALUES (new.user_id, new.model, new.thread_id, new.source, new.source_id, new.part, new.signs);
END;

-- name: trigger_vector_changed
CREATE TRIGGER vector_changed AFTER UPDATE OF signs ON vectors
BEGIN
    DELETE FROM vector_blocks
    WHERE user_id = new.user_id AND model = new.model AND thread_id = new.thread_id
      AND source = new.source AND first <= new.source_id AND last >= new.source_id;
    UPDATE waiting_vectors SET signs = new.signs
    WHERE user_id = new.user_id AND model = new.model AND thread_id = new.thread_id
      AND source = new.source AND source_id = new.source_id AND part = new.part;
END;

-- name: trigger_vector_deleted
CREATE TRIGGER vector_deleted AFTER DELETE ON vectors
BEGIN
    DELETE FROM vector_blocks
    WHERE user_id = old.user_id AND model = old.model AND thread_id = old.thread_id
      AND source = old.source AND first <= old.source_id AND last >= old.source_id;
    DELETE FROM waiting_vectors
    WHERE user_id = old.user_id AND model = old.model AND thread_id = old.thread_id
      AND source = old.source AND source_id = old.source_id AND part = old.part;
END;

-- name: trigger_vector_block_added
CREATE TRIGGER vector_block_added AFTER INSERT ON vector_blocks
BEGIN
    DELETE FROM waiting_vectors
    WHERE user_id = new.user_id AND model = new.model AND thread_id = new.thread_id
      AND source = new.source AND source_id BETWEEN new.first AND new.last;
END;

-- name: trigger_vector_block_deleted
-- Its vectors wait again.
CREATE TRIGGER vector_block_deleted AFTER DELETE ON vector_blocks
BEGIN
    INSERT INTO waiting_vectors (user_id, model, thread_id, source, source_id, part, signs)
    SELECT user_id, model, thread_id, source, source_id, part, signs FROM vectors
    WHERE user_id = old.user_id AND thread_id = old.thread_id AND model = old.model
      AND source = old.source AND source_id BETWEEN old.first AND old.last
    ON CONFLICT (user_id, model, thread_id, source, source_id, part) DO NOTHING;
END;
