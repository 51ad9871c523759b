-- The version of a text's index, so that texts that an earlier version indexed can be indexed again.

-- name: add_version
ALTER TABLE search_texts ADD COLUMN version bigint NOT NULL DEFAULT 1;

-- name: index_outdated_texts
CREATE INDEX search_texts_outdated ON search_texts (user_id, thread_id, node_id, call)
WHERE version < 2;

-- name: create_search_rewrite
-- Replaces the terms of one of the owner's texts.
CREATE FUNCTION search_rewrite(text_id bigint, terms tsvector) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = agent_runtime, pg_temp
AS $$
    UPDATE agent_runtime.search_index SET terms = $2
    WHERE id = $1 AND owner = current_setting('agent_runtime.user_id', true)
$$;
