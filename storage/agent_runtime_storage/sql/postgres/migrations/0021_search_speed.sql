-- What a search reads of a text, in narrow rows: it visits thousands of them, and beside the words
-- only a dozen fit on a page.

-- name: allow_time
-- An index over many texts takes longer than any other statement may.
SELECT set_config('statement_timeout', '0', true);

-- name: create_search_entries
CREATE TABLE search_entries (
    id       bigint   PRIMARY KEY REFERENCES search_index (id) ON DELETE CASCADE,
    owner    text     COLLATE "C" NOT NULL,
    length   bigint   NOT NULL,
    -- The words that the text has more than once: six bytes of the term, then how often.
    repeats  bytea    NOT NULL
);

-- name: create_search_repeats
CREATE FUNCTION search_repeats(terms tsvector) RETURNS bytea
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT coalesce(string_agg(
        decode(lexeme, 'hex') || set_byte('\x00'::bytea, 0, least(cardinality(positions), 255)),
        '' ORDER BY lexeme), '')
    FROM unnest($1) WHERE cardinality(positions) > 1
$$;

-- name: create_search_terms
-- Not really immutable, but the words of a text never change, and only such functions can be
-- indexed: the index is over words that lie in another table.
CREATE FUNCTION search_terms(text_id bigint) RETURNS tsvector
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = agent_runtime, pg_temp
AS $$ SELECT terms FROM agent_runtime.search_index WHERE id = $1 $$;

-- name: fill_search_entries
INSERT INTO search_entries (id, owner, length, repeats)
SELECT id, owner, length, search_repeats(terms) FROM search_index;

-- name: index_search_entries
-- A search also reads the texts that wait for being merged into the index, for each word: by
-- default up to four megabytes of them.
CREATE INDEX search_entries_by_term ON search_entries USING gin (search_terms(id))
WITH (gin_pending_list_limit = 256);

-- name: drop_search_index_by_term
DROP INDEX search_index_by_term;

-- name: drop_columns
ALTER TABLE search_index DROP COLUMN owner, DROP COLUMN length;

-- name: drop_search_count
DROP FUNCTION search_count(tsquery, bigint);

-- name: drop_search_matches
DROP FUNCTION search_matches(tsquery);

-- name: drop_search_times
DROP FUNCTION search_times(tsvector, tsquery);

-- name: replace_search_add
-- The text has to be the owner's, or one could put words into those of others.
CREATE OR REPLACE FUNCTION search_add(text_id bigint, terms tsvector) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = agent_runtime, pg_temp
AS $$
    INSERT INTO agent_runtime.search_index (id, terms)
    SELECT t.id, $2 FROM agent_runtime.search_texts AS t
    WHERE t.id = $1 AND t.user_id = current_setting('agent_runtime.user_id', true);
    INSERT INTO agent_runtime.search_entries (id, owner, length, repeats)
    SELECT t.id, t.user_id, t.length, agent_runtime.search_repeats($2)
    FROM agent_runtime.search_texts AS t
    WHERE t.id = $1 AND t.user_id = current_setting('agent_runtime.user_id', true);
$$;

-- name: replace_search_rewrite
-- Replaces the words of one of the owner's texts.  Its entry is made anew: an update would leave the
-- index as it is, since no column that it names has changed.
CREATE OR REPLACE FUNCTION search_rewrite(text_id bigint, terms tsvector) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = agent_runtime, pg_temp
AS $$
    UPDATE agent_runtime.search_index AS i SET terms = $2
    FROM agent_runtime.search_entries AS e
    WHERE i.id = $1 AND e.id = $1
      AND e.owner = current_setting('agent_runtime.user_id', true);
    DELETE FROM agent_runtime.search_entries AS e
    WHERE e.id = $1 AND e.owner = current_setting('agent_runtime.user_id', true);
    INSERT INTO agent_runtime.search_entries (id, owner, length, repeats)
    SELECT t.id, t.user_id, t.length, agent_runtime.search_repeats($2)
    FROM agent_runtime.search_texts AS t
    WHERE t.id = $1 AND t.user_id = current_setting('agent_runtime.user_id', true);
$$;

-- name: create_search_count
CREATE FUNCTION search_count(term text, most bigint) RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = agent_runtime, pg_temp
AS $$
    SELECT count(*) FROM (
        SELECT FROM agent_runtime.search_entries
        WHERE agent_runtime.search_terms(id) @@ $1::tsquery
          AND owner = current_setting('agent_runtime.user_id', true) LIMIT $2
    ) AS held
$$;

-- name: create_search_matches
-- The owner's texts with a word, their lengths, and how often each has it.
CREATE FUNCTION search_matches(term text)
RETURNS TABLE (id bigint, length bigint, times integer)
LANGUAGE sql STABLE SECURITY DEFINER ROWS 100 SET search_path = agent_runtime, pg_temp
AS $$
    SELECT e.id, e.length,
           CASE position(decode($1, 'hex') IN e.repeats)
               WHEN 0 THEN 1
               ELSE get_byte(e.repeats, position(decode($1, 'hex') IN e.repeats) + 5) END
    FROM agent_runtime.search_entries AS e
    WHERE agent_runtime.search_terms(e.id) @@ $1::tsquery
      AND e.owner = current_setting('agent_runtime.user_id', true)
$$;

-- name: replace_search_holders
-- The owner's texts with all of some words.
CREATE OR REPLACE FUNCTION search_holders(words tsquery) RETURNS SETOF bigint
LANGUAGE sql STABLE SECURITY DEFINER ROWS 100 SET search_path = agent_runtime, pg_temp
AS $$
    SELECT e.id FROM agent_runtime.search_entries AS e
    WHERE agent_runtime.search_terms(e.id) @@ $1
      AND e.owner = current_setting('agent_runtime.user_id', true)
$$;

-- name: revoke_search_entries
REVOKE ALL ON search_entries FROM PUBLIC;

-- name: replace_nearest_vectors
-- As before, except that it takes fewer from the index where many are wanted: sixteen times two
-- hundred cost more than to compare all of 100,000.
CREATE OR REPLACE FUNCTION nearest_vectors(
    owner text, of_model text, of_thread text, of_sources jsonb, query vector, wanted integer,
    exact_rows integer DEFAULT 20000)
RETURNS TABLE (
    thread_id text, source text, source_id bigint, part integer, similarity double precision)
LANGUAGE plpgsql
AS $$
DECLARE
    size integer = vector_dims(query);
    kind text = CASE WHEN size <= 2000 THEN 'vector' ELSE 'halfvec' END;
    of_embedder bigint = (
        SELECT e.id FROM embedders AS e
        WHERE e.user_id = owner AND e.model = of_model AND e.dimensions = size);
    sources text[] = ARRAY(SELECT jsonb_array_elements_text(of_sources));
    hidden text[] = ARRAY(SELECT id FROM threads AS t WHERE t.user_id = owner AND t.hidden <> '');
    filter text = 'user_id = $1 AND model = $2'
        || CASE WHEN of_thread IS NULL THEN '' ELSE ' AND thread_id = $3' END
        || CASE WHEN of_sources IS NULL THEN '' ELSE ' AND source = ANY ($4)' END
        || CASE WHEN hidden = '{}' THEN '' ELSE ' AND thread_id <> ALL ($5)' END;
    exact text = format(
        'SELECT thread_id, source, source_id, part, embedding <=> $6 AS distance'
        ' FROM vectors WHERE dimensions = %s AND %s'
        ' ORDER BY distance, thread_id, source, source_id, part LIMIT $7', size, filter);
    most bigint = exact_rows::bigint * CASE WHEN of_thread IS NULL THEN 1 ELSE 5 END;
    taken bigint = least(16 * wanted::bigint, greatest(4 * wanted::bigint, 800));
    candidates bigint;
BEGIN
    IF of_embedder IS NULL THEN
        RETURN;
    END IF;
    EXECUTE format(
        'SELECT count(*) FROM (SELECT FROM vectors WHERE %s LIMIT $6) AS counted', filter)
        INTO candidates USING owner, of_model, of_thread, sources, hidden, most + 1;
    IF candidates <= most OR size > 4000 THEN
        RETURN QUERY EXECUTE format(
            'SELECT thread_id, source, source_id, part, 1 - distance FROM (%s) AS nearest', exact)
            USING owner, of_model, of_thread, sources, hidden, query, wanted;
        RETURN;
    END IF;
    -- Where the planner's figures are old it takes many for few, and would sort them all.
    PERFORM set_config('enable_sort', 'off', true),
        set_config('hnsw.iterative_scan', 'relaxed_order', true),
        set_config('hnsw.ef_search', '800', true),
        set_config('hnsw.max_scan_tuples', '200000', true),
        set_config('hnsw.scan_mem_multiplier', '8', true);
    RETURN QUERY EXECUTE format(
        'WITH near AS MATERIALIZED ('
        '    SELECT thread_id, source, source_id, part, embedding FROM vectors'
        '    WHERE embedder = %5$s AND dimensions = %1$s AND %2$s'
        '    ORDER BY embedding::%3$s(%1$s) <=> $6::%3$s(%1$s) LIMIT $8),'
        ' complete AS MATERIALIZED (SELECT count(*) >= $7 AS it_is FROM near),'
        ' nearest AS ('
        '    SELECT thread_id, source, source_id, part, embedding <=> $6 AS distance FROM near'
        '    WHERE (SELECT it_is FROM complete)'
        '    UNION ALL SELECT * FROM (SELECT * FROM (%4$s) AS found'
        '    WHERE NOT (SELECT it_is FROM complete)) AS rest)'
        ' SELECT thread_id, source, source_id, part, 1 - distance FROM nearest'
        ' ORDER BY distance, thread_id, source, source_id, part LIMIT $7',
        size, filter, kind, exact, of_embedder)
        USING owner, of_model, of_thread, sources, hidden, query, wanted, taken;
END
$$;
