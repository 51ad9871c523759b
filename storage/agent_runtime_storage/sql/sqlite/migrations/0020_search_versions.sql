-- The version of a text's index, so that texts that an earlier version indexed can be indexed again.

-- name: add_version
ALTER TABLE search_texts ADD COLUMN version INTEGER NOT NULL DEFAULT 1;

-- name: index_outdated_texts
CREATE INDEX search_texts_outdated ON search_texts (user_id, thread_id, node_id, call)
WHERE version < 2;

-- name: drop_search_writer
-- With its trigger.
DROP VIEW search_writer;

-- name: create_search_writer
CREATE VIEW search_writer AS
SELECT id, user_id, thread_id, node_id, call, length, version, '' AS terms FROM search_texts;

-- name: trigger_search_write
CREATE TRIGGER search_write INSTEAD OF INSERT ON search_writer
WHEN NOT EXISTS (
    SELECT 1 FROM search_texts
    WHERE user_id = new.user_id AND thread_id = new.thread_id AND node_id = new.node_id
      AND call = new.call)
BEGIN
    INSERT INTO search_texts (user_id, thread_id, node_id, call, length, version)
    VALUES (new.user_id, new.thread_id, new.node_id, new.call, new.length,
            coalesce(new.version, 1));
    INSERT INTO search_index (rowid, "1", "2", "4", "8", "16", "32", "64", "128")
    VALUES (last_insert_rowid(),
            json_extract(new.terms, '$[0]'), json_extract(new.terms, '$[1]'),
            json_extract(new.terms, '$[2]'), json_extract(new.terms, '$[3]'),
            json_extract(new.terms, '$[4]'), json_extract(new.terms, '$[5]'),
            json_extract(new.terms, '$[6]'), json_extract(new.terms, '$[7]'));
    INSERT INTO search_totals (user_id, thread_id, texts, length)
    VALUES (new.user_id, new.thread_id, 1, new.length)
    ON CONFLICT (user_id, thread_id) DO UPDATE
    SET texts = texts + 1, length = length + excluded.length;
END;

-- name: trigger_search_rewrite
-- Replaces the terms of a text that an earlier version indexed; its words, so its length, stay.
CREATE TRIGGER search_rewrite INSTEAD OF UPDATE OF terms ON search_writer
BEGIN
    DELETE FROM search_index WHERE rowid = old.id;
    INSERT INTO search_index (rowid, "1", "2", "4", "8", "16", "32", "64", "128")
    VALUES (old.id,
            json_extract(new.terms, '$[0]'), json_extract(new.terms, '$[1]'),
            json_extract(new.terms, '$[2]'), json_extract(new.terms, '$[3]'),
            json_extract(new.terms, '$[4]'), json_extract(new.terms, '$[5]'),
            json_extract(new.terms, '$[6]'), json_extract(new.terms, '$[7]'));
    UPDATE search_texts SET version = new.version WHERE id = old.id;
END;
