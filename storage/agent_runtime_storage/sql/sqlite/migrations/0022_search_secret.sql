-- The secret of the words in the full-text index.  In a file it lies next to them, and protects only
-- copies of the index alone; on a server, who may read that may not read this.

-- name: create_search_secrets
CREATE TABLE search_secrets (secret BLOB NOT NULL) STRICT;

-- name: choose_search_secret
-- An index that has words keeps to those without a secret, until it is built again.
INSERT INTO search_secrets (secret)
SELECT CASE WHEN EXISTS (SELECT 1 FROM search_texts) THEN x'' ELSE randomblob(32) END;
