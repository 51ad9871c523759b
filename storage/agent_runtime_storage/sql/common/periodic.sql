-- What is done for an owner from time to time.

-- name: claim_periodic
INSERT INTO periodic (user_id, kind, due_at, token)
VALUES (:user_id, :kind, {now} + :seconds, :token)
ON CONFLICT (user_id, kind) DO UPDATE SET due_at = excluded.due_at, token = excluded.token
    WHERE periodic.due_at <= {now}
RETURNING token;

-- name: claimed_periodic
SELECT token FROM periodic WHERE user_id = :user_id AND kind = :kind AND token = :token;

-- name: finish_periodic
-- It can be written twice by who holds the token, should the first answer be lost on its way.
UPDATE periodic SET due_at = {now} + :again_after
WHERE user_id = :user_id AND kind = :kind AND token = :token;
