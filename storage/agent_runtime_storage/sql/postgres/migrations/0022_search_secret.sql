-- The secret of the words in the full-text index: without it, who reads the index cannot find out
-- offline which words it has.

-- name: create_search_secrets
CREATE TABLE search_secrets (secret bytea NOT NULL);

-- name: choose_search_secret
-- An index that has words keeps to those without a secret, until it is built again.
INSERT INTO search_secrets (secret)
SELECT CASE WHEN EXISTS (SELECT FROM search_texts) THEN ''::bytea
            ELSE decode(replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''), 'hex')
       END;

-- name: revoke_search_secrets
REVOKE ALL ON search_secrets FROM PUBLIC;

-- name: create_search_secret
-- Only the owner's own part: with the whole secret one owner could test for the words of others.
CREATE FUNCTION search_secret() RETURNS bytea
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = agent_runtime, pg_temp
AS $$
    SELECT CASE WHEN secret = ''::bytea THEN secret
                ELSE sha256(secret || convert_to(
                    coalesce(current_setting('agent_runtime.user_id', true), ''), 'UTF8')) END
    FROM agent_runtime.search_secrets
$$;
