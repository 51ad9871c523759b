-- Vectors of what lies in threads, for search by likeness.

-- name: create_embedders
-- The models that made an owner's vectors.  One row a model, so that vectors of different lengths
-- never stand under one name.
CREATE TABLE embedders (
    user_id     text              COLLATE "C" NOT NULL CHECK (user_id <> ''),
    model       text              COLLATE "C" NOT NULL CHECK (model <> ''),
    dimensions  integer           NOT NULL CHECK (dimensions BETWEEN 1 AND 16000),
    created_at  double precision  NOT NULL,
    PRIMARY KEY (user_id, model),
    UNIQUE (user_id, model, dimensions)
);

-- name: create_vectors
-- The key begins with the thread, because that is how vectors are filtered and deleted; it also
-- tells an owner's vectors of one model without a look at the rows.  Rows up to a page stay in one
-- piece: an exact search reads thousands.
CREATE TABLE vectors (
    user_id     text     COLLATE "C" NOT NULL,
    thread_id   text     COLLATE "C" NOT NULL,
    model       text     COLLATE "C" NOT NULL,
    source      text     COLLATE "C" NOT NULL CHECK (source <> ''),
    source_id   bigint   NOT NULL,
    part        integer  NOT NULL CHECK (part >= 0),
    dimensions  integer  NOT NULL,
    embedding   vector   NOT NULL CHECK (vector_dims(embedding) = dimensions),
    PRIMARY KEY (user_id, thread_id, model, source, source_id, part),
    FOREIGN KEY (user_id, thread_id) REFERENCES threads (user_id, id),
    FOREIGN KEY (user_id, model, dimensions) REFERENCES embedders (user_id, model, dimensions)
) WITH (toast_tuple_target = 8160);

-- name: guard_embedders
SELECT guard_table('embedders');

-- name: guard_vectors
SELECT guard_table('vectors');

-- name: create_vector_index_is_due
-- Whether an owner has so many vectors of a model that an index pays.  For fewer it would only make
-- every write dear (3 ms instead of 0.1), so it waits for the first who has them.
CREATE FUNCTION vector_index_is_due(
    owner text, of_model text, size integer, least_rows integer DEFAULT 20000)
RETURNS boolean
LANGUAGE plpgsql
AS $$
BEGIN
    IF size > 4000 OR to_regclass('vectors_' || size) IS NOT NULL
        OR pg_table_size('vectors') < least_rows::bigint * size * 4 THEN
        RETURN false;
    END IF;
    RETURN (SELECT count(*) FROM (
        SELECT FROM vectors WHERE user_id = owner AND model = of_model LIMIT least_rows + 1
    ) AS counted) > least_rows;
END
$$;

-- name: create_index_vectors
-- The index for vectors of one length.  An index of pgvector has one length; `vector` has one up to
-- 2,000, `halfvec` up to 4,000, above there is none.  Whoever may write vectors may need one, so it
-- is made with the rights of the schema's owner.  Writers of vectors wait meanwhile, a few seconds
-- for 20,000; all of them fit the memory that it takes, or it would be minutes.
CREATE FUNCTION index_vectors(size integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET maintenance_work_mem = '256MB'
AS $$
DECLARE
    name text = 'vectors_' || size;
    kind text = CASE WHEN size <= 2000 THEN 'vector' ELSE 'halfvec' END;
BEGIN
    IF size BETWEEN 1 AND 4000 AND to_regclass(name) IS NULL THEN
        EXECUTE format(
            'CREATE INDEX IF NOT EXISTS %I ON vectors'
            ' USING hnsw ((embedding::%s(%s)) %s_cosine_ops) WHERE dimensions = %s',
            name, kind, size, kind, size);
    END IF;
END
$$;

-- name: create_nearest_vectors
-- The nearest of an owner's vectors of one model: exact among few candidates, by the index among
-- many, where it is read until sixteen times as many as wanted pass the filter (of 50,000 among
-- 200,000 it found 0.92 of the ten nearest without that, 0.99 with it).  A thread is a filter that
-- the index serves badly: of 16,000 among 200,000 it found 0.91 in 260 ms, a scan all in 30 ms.  If
-- the index gives too few, the answer is exact after all.
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
        set_config('hnsw.ef_search', '400', true),
        set_config('hnsw.max_scan_tuples', '200000', true),
        set_config('hnsw.scan_mem_multiplier', '8', true);
    RETURN QUERY EXECUTE format(
        'WITH near AS MATERIALIZED ('
        '    SELECT thread_id, source, source_id, part, embedding FROM vectors'
        '    WHERE dimensions = %1$s AND %2$s'
        '    ORDER BY embedding::%3$s(%1$s) <=> $6::%3$s(%1$s) LIMIT 16 * $7::bigint),'
        ' complete AS MATERIALIZED (SELECT count(*) >= $7 AS it_is FROM near),'
        ' nearest AS ('
        '    SELECT thread_id, source, source_id, part, embedding <=> $6 AS distance FROM near'
        '    WHERE (SELECT it_is FROM complete)'
        '    UNION ALL SELECT * FROM (SELECT * FROM (%4$s) AS found'
        '    WHERE NOT (SELECT it_is FROM complete)) AS rest)'
        ' SELECT thread_id, source, source_id, part, 1 - distance FROM nearest'
        ' ORDER BY distance, thread_id, source, source_id, part LIMIT $7',
        size, filter, kind, exact)
        USING owner, of_model, of_thread, sources, hidden, query, wanted;
END
$$;
