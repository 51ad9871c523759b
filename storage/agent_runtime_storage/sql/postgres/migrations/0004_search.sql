-- Full text.  The index holds an owner's words as keyed hashes in hexadecimal, which are nobody
-- else's.  How often a text has a word is told by how many places the word has; the places
-- themselves mean nothing.
--
-- The ranking is not `ts_rank`, which knows nothing of how rare a word is and found half as much
-- among long messages.

-- name: create_search_texts
CREATE TABLE search_texts (
    id         bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    user_id    text    COLLATE "C" NOT NULL,
    thread_id  text    COLLATE "C" NOT NULL,
    node_id    bigint  NOT NULL,
    -- The call whose result it is; -1 for the text of the node itself.
    call       bigint  NOT NULL CHECK (call >= -1),
    length     bigint  NOT NULL CHECK (length > 0),
    UNIQUE (user_id, thread_id, node_id, call),
    FOREIGN KEY (user_id, thread_id, node_id) REFERENCES nodes (user_id, thread_id, id)
);

-- name: create_search_totals
CREATE TABLE search_totals (
    user_id    text    COLLATE "C" NOT NULL,
    thread_id  text    COLLATE "C" NOT NULL,
    texts      bigint  NOT NULL CHECK (texts >= 0),
    length     bigint  NOT NULL CHECK (length >= 0),
    PRIMARY KEY (user_id, thread_id),
    FOREIGN KEY (user_id, thread_id) REFERENCES threads (user_id, id) ON DELETE CASCADE
) WITH (fillfactor = 70);

-- name: create_search_index
-- Apart from the texts that it is of, and under no policy: `@@` is not leakproof, so below one the
-- planner would not use the index.  It shows nothing without them: a row is a number and hashes,
-- and no other owner's words have the same ones.
CREATE TABLE search_index (
    id      bigint    PRIMARY KEY REFERENCES search_texts (id) ON DELETE CASCADE,
    length  bigint    NOT NULL,
    terms   tsvector  NOT NULL
);

-- name: keep_terms_as_they_are
-- Hashes do not compress.
ALTER TABLE search_index ALTER COLUMN terms SET STORAGE EXTERNAL;

-- name: index_search_index
CREATE INDEX search_index_by_term ON search_index USING gin (terms);

-- name: create_search_times
-- How often a text has a word.  For a query of one word `ts_rank` is the sum of 1/i² up to that
-- number, over its limit for ever more; what is missing of the limit is about 1 / (n + 1/2), which
-- gives n back exactly up to 255.  No other function of the server's looks a word's places up
-- without going through all words.
CREATE FUNCTION search_times(terms tsvector, word tsquery) RETURNS double precision
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT round(1 / (1.64493406685 * (1 - ts_rank('{1, 1, 1, 1}', terms, word))) - 0.5) $$;

-- name: guard_search
SELECT guard_table(name) FROM unnest(ARRAY['search_texts', 'search_totals']) AS name;

-- name: grant_search_index
-- Nobody reaches it who has no right to the schema.
GRANT SELECT, INSERT, DELETE ON search_index TO PUBLIC;
