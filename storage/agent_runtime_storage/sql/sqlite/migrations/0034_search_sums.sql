-- What a search has to know of all texts of an owner, so that it does not read a row a thread.

-- name: create_search_sums
CREATE TABLE search_sums (
    user_id  TEXT    NOT NULL PRIMARY KEY,
    texts    INTEGER NOT NULL,
    length   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- name: fill_search_sums
INSERT INTO search_sums (user_id, texts, length)
SELECT user_id, sum(texts), sum(length) FROM search_totals GROUP BY user_id;

-- name: trigger_search_totals_insert
CREATE TRIGGER search_totals_insert AFTER INSERT ON search_totals
BEGIN
    INSERT INTO search_sums (user_id, texts, length) VALUES (new.user_id, new.texts, new.length)
    ON CONFLICT (user_id) DO UPDATE
    SET texts = texts + excluded.texts, length = length + excluded.length;
END;

-- name: trigger_search_totals_update
CREATE TRIGGER search_totals_update AFTER UPDATE ON search_totals
BEGIN
    UPDATE search_sums
    SET texts = texts + new.texts - old.texts, length = length + new.length - old.length
    WHERE user_id = new.user_id;
END;

-- name: trigger_search_totals_delete
CREATE TRIGGER search_totals_delete AFTER DELETE ON search_totals
BEGIN
    UPDATE search_sums SET texts = texts - old.texts, length = length - old.length
    WHERE user_id = old.user_id;
    DELETE FROM search_sums WHERE user_id = old.user_id AND texts = 0 AND length = 0;
END;
