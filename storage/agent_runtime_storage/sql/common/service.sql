-- Tokens of users, and requests that may be sent twice.

-- name: make_token
INSERT INTO tokens (user_id, id, name, prefix, hash, created_at, expires_at)
-- NULL seconds give a NULL time: such a token does not expire.
VALUES (:user_id, :id, :name, :prefix, :hash, {now}, {now} + :seconds{as_double})
RETURNING id, user_id, name, prefix, created_at, expires_at, used_at, revoked_at;

-- name: token_by_hash
-- Of any owner: the token says who that is.  One that is revoked or has expired is not found.
-- The last column says whether the use is to be recorded: once a minute, so that not each request writes.
SELECT id, user_id, used_at IS NULL OR used_at < {now} - 60
FROM tokens
WHERE hash = :hash AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > {now});

-- name: tokens_of_all
SELECT id, user_id, name, prefix, created_at, expires_at, used_at, revoked_at
FROM tokens ORDER BY created_at, id;

-- name: tokens_usable
SELECT 1 FROM tokens
WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > {now}) LIMIT 1;

-- name: use_token
UPDATE tokens SET used_at = {now}
WHERE user_id = :user_id AND id = :id AND (used_at IS NULL OR used_at < {now} - 60);

-- name: revoke_token
UPDATE tokens SET revoked_at = {now} WHERE id = :id AND revoked_at IS NULL
RETURNING id;

-- name: backlog
-- Of all owners, by the indexes of what is open and active.
SELECT 'questions', count(*) FROM questions WHERE status = 'open' AND expires_at > {now}
UNION ALL
SELECT status, count(*) FROM runs WHERE status IN ('queued', 'running', 'suspended')
GROUP BY status;

-- name: forget_requests
DELETE FROM requests WHERE user_id = :user_id AND claimed_at < {now} - :seconds{as_double};

-- name: claim_request
-- A claim without an answer can be taken over by the same request once its time is up.
INSERT INTO requests (user_id, key, digest, made_id, claim, claimed_at)
VALUES (:user_id, :key, :digest, :made_id, :claim, {now})
ON CONFLICT (user_id, key) DO UPDATE SET claim = excluded.claim, claimed_at = excluded.claimed_at
    WHERE requests.digest = excluded.digest AND requests.status IS NULL
        AND requests.claimed_at < {now} - :seconds{as_double};

-- name: request
SELECT digest, made_id, claim, status, body FROM requests WHERE user_id = :user_id AND key = :key;

-- name: answer_request
-- Whoever lost the claim by being too slow writes nothing: the other's answer counts.
UPDATE requests SET status = :status, body = :body
WHERE user_id = :user_id AND key = :key AND claim = :claim;

-- name: drop_request
DELETE FROM requests
WHERE user_id = :user_id AND key = :key AND claim = :claim AND status IS NULL;
