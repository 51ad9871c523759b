-- What a search has to know of all texts of an owner, so that it does not read a row a thread.

-- name: create_search_sums
-- In parts, so that an owner's threads that are indexed at the same time seldom wait for each other.
-- Only the sum of the parts says anything.
CREATE TABLE search_sums (
    user_id  text    COLLATE "C" NOT NULL,
    part     integer NOT NULL,
    texts    bigint  NOT NULL,
    length   bigint  NOT NULL,
    PRIMARY KEY (user_id, part)
) WITH (fillfactor = 50);

-- name: create_search_sum
CREATE FUNCTION search_sum(owner text, thread text, more_texts bigint, more_length bigint)
RETURNS void
LANGUAGE sql SET search_path = agent_runtime, pg_temp
AS $$
    INSERT INTO agent_runtime.search_sums AS s (user_id, part, texts, length)
    VALUES ($1, hashtext($2) & 63, $3, $4)
    ON CONFLICT (user_id, part) DO UPDATE
    SET texts = s.texts + excluded.texts, length = s.length + excluded.length;
    DELETE FROM agent_runtime.search_sums AS s
    WHERE s.user_id = $1 AND s.part = hashtext($2) & 63 AND s.texts = 0 AND s.length = 0
      AND $3 <= 0
$$;

-- name: create_search_totals_changed
CREATE FUNCTION search_totals_changed() RETURNS trigger
LANGUAGE plpgsql SET search_path = agent_runtime, pg_temp
AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM agent_runtime.search_sum(new.user_id, new.thread_id, new.texts, new.length);
    ELSIF TG_OP = 'UPDATE' THEN
        PERFORM agent_runtime.search_sum(
            new.user_id, new.thread_id, new.texts - old.texts, new.length - old.length);
    ELSE
        PERFORM agent_runtime.search_sum(old.user_id, old.thread_id, -old.texts, -old.length);
    END IF;
    RETURN NULL;
END
$$;

-- name: fill_search_sums
INSERT INTO search_sums (user_id, part, texts, length)
SELECT user_id, hashtext(thread_id) & 63, sum(texts), sum(length)
FROM search_totals GROUP BY user_id, hashtext(thread_id) & 63;

-- name: trigger_search_totals
CREATE TRIGGER search_totals_changed AFTER INSERT OR UPDATE OR DELETE ON search_totals
FOR EACH ROW EXECUTE FUNCTION search_totals_changed();

-- name: guard_tables
SELECT agent_runtime.guard_table('search_sums');
