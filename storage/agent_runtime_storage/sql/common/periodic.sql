-- Periodic work for an owner: each kind has one row, which the first process to claim it takes.

-- name: claim_periodic
INSERT INTO periodic (user_id, kind, due_at, token)
VALUES (:user_id, :kind, {now} + :seconds, :token)
ON CONFLICT (user_id, kind) DO UPDATE SET due_at = excluded.due_at, token = excluded.token
    WHERE periodic.due_at <= {now}
RETURNING token;

-- name: claimed_periodic
-- Whether a claim whose answer was lost has been made: its token is unique.
SELECT token FROM periodic WHERE user_id = :user_id AND kind = :kind AND token = :token;

-- name: finish_periodic
-- Keeps the token, so that it can be repeated if the answer is lost.
UPDATE periodic SET due_at = {now} + :again_after
WHERE user_id = :user_id AND kind = :kind AND token = :token;
