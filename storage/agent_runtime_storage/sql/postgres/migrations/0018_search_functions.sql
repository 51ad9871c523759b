-- The full-text index behind functions: it cannot be behind a policy, since `@@` is not leakproof and
-- the planner would not use the index.  An owner's statements had all rights to read it, and to
-- delete the words of others; now they have none, and functions show each owner its own rows.

-- name: add_owner
ALTER TABLE search_index ADD COLUMN owner text COLLATE "C";

-- name: fill_owner
UPDATE search_index AS i SET owner = t.user_id FROM search_texts AS t WHERE t.id = i.id;

-- name: require_owner
ALTER TABLE search_index ALTER COLUMN owner SET NOT NULL;

-- name: create_search_add
-- The text has to be the owner's, or one could put words into those of others.
CREATE FUNCTION search_add(text_id bigint, terms tsvector) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = agent_runtime, pg_temp
AS $$
    INSERT INTO agent_runtime.search_index (id, owner, length, terms)
    SELECT t.id, t.user_id, t.length, $2 FROM agent_runtime.search_texts AS t
    WHERE t.id = $1 AND t.user_id = current_setting('agent_runtime.user_id', true)
$$;

-- name: create_search_count
CREATE FUNCTION search_count(word tsquery, most bigint) RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = agent_runtime, pg_temp
AS $$
    SELECT count(*) FROM (
        SELECT FROM agent_runtime.search_index
        WHERE terms @@ $1 AND owner = current_setting('agent_runtime.user_id', true) LIMIT $2
    ) AS held
$$;

-- name: create_search_matches
-- The owner's texts that match, with their lengths, and how often each has the word.
CREATE FUNCTION search_matches(word tsquery)
RETURNS TABLE (id bigint, length bigint, times double precision)
LANGUAGE sql STABLE SECURITY DEFINER ROWS 100 SET search_path = agent_runtime, pg_temp
AS $$
    SELECT i.id, i.length, agent_runtime.search_times(i.terms, $1)
    FROM agent_runtime.search_index AS i
    WHERE i.terms @@ $1 AND i.owner = current_setting('agent_runtime.user_id', true)
$$;

-- name: create_search_holders
-- The owner's texts that match.  Apart from the function above: how often a text has several words
-- together is not defined.
CREATE FUNCTION search_holders(words tsquery) RETURNS SETOF bigint
LANGUAGE sql STABLE SECURITY DEFINER ROWS 100 SET search_path = agent_runtime, pg_temp
AS $$
    SELECT i.id FROM agent_runtime.search_index AS i
    WHERE i.terms @@ $1 AND i.owner = current_setting('agent_runtime.user_id', true)
$$;

-- name: revoke_search_index
REVOKE ALL ON search_index FROM PUBLIC;
