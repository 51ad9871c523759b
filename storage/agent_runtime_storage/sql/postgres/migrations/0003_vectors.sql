-- Vectors of what lies in threads, for search by likeness.

-- name: create_embedders
-- The models that made an owner's vectors.  One row a model, so that vectors of different lengths
-- never stand under one name.  The number stands for owner and model in the names of indexes.
CREATE TABLE embedders (
    id          bigint                         NOT NULL GENERATED ALWAYS AS IDENTITY,
    user_id     text              COLLATE "C"  NOT NULL CHECK (user_id <> ''),
    model       text              COLLATE "C"  NOT NULL CHECK (model <> ''),
    dimensions  integer                        NOT NULL CHECK (dimensions BETWEEN 1 AND 16000),
    created_at  double precision               NOT NULL,
    PRIMARY KEY (user_id, model),
    UNIQUE (user_id, model, dimensions, id)
);

-- name: create_vectors
-- The key begins with the thread, because that is how vectors are filtered and deleted; it also
-- tells an owner's vectors of one model without a look at the rows.  Rows up to a page stay in one
-- piece: an exact search reads thousands.
CREATE TABLE vectors (
    user_id     text     COLLATE "C"  NOT NULL,
    thread_id   text     COLLATE "C"  NOT NULL,
    model       text     COLLATE "C"  NOT NULL,
    source      text     COLLATE "C"  NOT NULL CHECK (source <> ''),
    source_id   bigint                NOT NULL,
    part        integer               NOT NULL CHECK (part >= 0),
    embedder    bigint                NOT NULL,
    dimensions  integer               NOT NULL,
    embedding   vector                NOT NULL CHECK (vector_dims(embedding) = dimensions),
    PRIMARY KEY (user_id, thread_id, model, source, source_id, part),
    FOREIGN KEY (user_id, thread_id) REFERENCES threads (user_id, id),
    FOREIGN KEY (user_id, model, dimensions, embedder)
        REFERENCES embedders (user_id, model, dimensions, id)
) WITH (toast_tuple_target = 8160);

-- name: guard_embedders
SELECT agent_runtime.guard_table('embedders');

-- name: guard_vectors
SELECT agent_runtime.guard_table('vectors');

-- name: create_vector_index_name
CREATE FUNCTION vector_index_name(embedder bigint, size integer) RETURNS text
LANGUAGE sql IMMUTABLE
AS $$ SELECT 'vectors_' || embedder || '_' || size $$;

-- name: create_vector_index_is_due
-- Whether an owner has so many vectors of a model that an index of their own pays.  For fewer it
-- would only make every write dear (3 ms instead of 0.1).  One for all owners would be the dearer
-- for each of them, and find less: what is near in it is mostly another's.  The table's size tells
-- at once that nobody has many.  Indexes beyond two hundred would make every query's plan dear.
CREATE FUNCTION vector_index_is_due(
    owner text, of_model text, size integer, least_rows integer DEFAULT 20000)
RETURNS boolean
LANGUAGE plpgsql
AS $$
DECLARE
    counted bigint;
BEGIN
    IF size > 4000 OR pg_table_size('vectors') < least_rows::bigint * size * 4 OR EXISTS (
        SELECT FROM embedders AS e JOIN pg_class AS c
            ON c.relname = vector_index_name(e.id, size)
            AND c.relnamespace = 'agent_runtime'::regnamespace
        WHERE e.user_id = owner AND e.model = of_model
    ) THEN
        RETURN false;
    END IF;
    SELECT count(*) INTO counted FROM (
        SELECT FROM vectors AS v WHERE v.user_id = owner AND v.model = of_model
        LIMIT least_rows + 1
    ) AS some_of_them;
    RETURN counted > least_rows
        AND (SELECT count(*) FROM pg_index WHERE indrelid = 'vectors'::regclass) <= 200;
END
$$;

-- name: create_index_vectors
-- The index for an owner's vectors of a model.  `vector` can have one up to 2,000 numbers,
-- `halfvec` up to 4,000.  Whoever may write vectors may need one, so it is made with the rights of
-- the schema's owner.  Writers of vectors wait meanwhile, a few seconds for 20,000; these fit the
-- memory that it takes, or it would be minutes.
CREATE FUNCTION index_vectors(of_embedder bigint, size integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET maintenance_work_mem = '256MB'
AS $$
DECLARE
    kind text = CASE WHEN size <= 2000 THEN 'vector' ELSE 'halfvec' END;
BEGIN
    IF size BETWEEN 1 AND 4000 THEN
        EXECUTE format(
            'CREATE INDEX IF NOT EXISTS %I ON vectors'
            ' USING hnsw ((embedding::%s(%s)) %s_cosine_ops)'
            ' WITH (ef_construction = 128) WHERE embedder = %s AND dimensions = %s',
            vector_index_name(of_embedder, size), kind, size, kind, of_embedder, size);
    END IF;
END
$$;

-- name: create_nearest_vectors
-- The nearest of an owner's vectors of one model: exact among few candidates, by the index among
-- many.  Of the ten nearest of 100,000 it finds 0.985; built or read with half the effort it finds
-- 0.90 to 0.94, and of some queries none: texts on a few topics lie in clusters that it does not
-- link well.  A thread is a filter that it serves badly, as what is near to a query tends to be in
-- other threads (where one of ten passed it found 0.75, in the time of a scan), so more are scanned
-- then.  It gives its rows roughly in order, so more are taken and sorted; if they are too few, the
-- answer is exact after all.
--
-- An expression without the cast does not match the index.  The function runs with the rights of
-- the caller, whose row-level security stays in force, and it plans each query anew: a plan that
-- serves any filter serves none well.
CREATE FUNCTION nearest_vectors(
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
        '    ORDER BY embedding::%3$s(%1$s) <=> $6::%3$s(%1$s) LIMIT 16 * $7::bigint),'
        ' complete AS MATERIALIZED (SELECT count(*) >= $7 AS it_is FROM near),'
        ' nearest AS ('
        '    SELECT thread_id, source, source_id, part, embedding <=> $6 AS distance FROM near'
        '    WHERE (SELECT it_is FROM complete)'
        '    UNION ALL SELECT * FROM (SELECT * FROM (%4$s) AS found'
        '    WHERE NOT (SELECT it_is FROM complete)) AS rest)'
        ' SELECT thread_id, source, source_id, part, 1 - distance FROM nearest'
        ' ORDER BY distance, thread_id, source, source_id, part LIMIT $7',
        size, filter, kind, exact, of_embedder)
        USING owner, of_model, of_thread, sources, hidden, query, wanted;
END
$$;
