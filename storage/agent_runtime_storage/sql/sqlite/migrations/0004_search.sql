-- Full text.  The index holds an owner's words as keyed hashes in hexadecimal, which are nobody
-- else's.  How often a text has a word is told by the columns that the word is in: their names add
-- up to it.  So the index needs no places, and the vocabulary gives it away in order.
--
-- The ranking is not FTS5's own: that counts over the whole index, so one owner's texts would
-- change what another finds.

-- name: create_search_texts
CREATE TABLE search_texts (
    id         INTEGER PRIMARY KEY,
    user_id    TEXT    NOT NULL,
    thread_id  TEXT    NOT NULL,
    node_id    INTEGER NOT NULL,
    -- The call whose result it is; -1 for the text of the node itself.
    call       INTEGER NOT NULL CHECK (call >= -1),
    length     INTEGER NOT NULL CHECK (length > 0),
    UNIQUE (user_id, thread_id, node_id, call),
    FOREIGN KEY (user_id, thread_id, node_id) REFERENCES nodes (user_id, thread_id, id)
) STRICT;

-- name: create_search_totals
CREATE TABLE search_totals (
    user_id    TEXT    NOT NULL,
    thread_id  TEXT    NOT NULL,
    texts      INTEGER NOT NULL CHECK (texts >= 0),
    length     INTEGER NOT NULL CHECK (length >= 0),
    PRIMARY KEY (user_id, thread_id),
    FOREIGN KEY (user_id, thread_id) REFERENCES threads (user_id, id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

-- name: create_search_index
CREATE VIRTUAL TABLE search_index USING fts5 (
    "1", "2", "4", "8", "16", "32", "64", "128",
    content = '', contentless_delete = 1, detail = column, tokenize = 'ascii');

-- name: create_search_vocabulary
CREATE VIRTUAL TABLE search_vocabulary USING fts5vocab (search_index, row);

-- name: create_search_postings
CREATE VIRTUAL TABLE search_postings USING fts5vocab (search_index, instance);

-- name: create_search_writer
-- One row in, all that indexing a text writes; what is indexed already is left as it is.  `terms`
-- is a JSON array of the columns of the index.
CREATE VIEW search_writer AS
SELECT user_id, thread_id, node_id, call, length, '' AS terms FROM search_texts;

-- name: trigger_search_write
CREATE TRIGGER search_write INSTEAD OF INSERT ON search_writer
WHEN NOT EXISTS (
    SELECT 1 FROM search_texts
    WHERE user_id = new.user_id AND thread_id = new.thread_id AND node_id = new.node_id
      AND call = new.call)
BEGIN
    INSERT INTO search_texts (user_id, thread_id, node_id, call, length)
    VALUES (new.user_id, new.thread_id, new.node_id, new.call, new.length);
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

-- name: trigger_search_delete
CREATE TRIGGER search_delete AFTER DELETE ON search_texts
BEGIN
    DELETE FROM search_index WHERE rowid = old.id;
    UPDATE search_totals SET texts = texts - 1, length = length - old.length
    WHERE user_id = old.user_id AND thread_id = old.thread_id;
END;
