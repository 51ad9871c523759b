-- What is done for an owner from time to time, by whichever process comes first.

-- name: create_periodic
CREATE TABLE periodic (
    user_id  text COLLATE "C" NOT NULL,
    kind     text COLLATE "C" NOT NULL CHECK (kind <> ''),
    -- When it may be claimed: once it is time again, or once a claim has expired.
    due_at   double precision NOT NULL,
    token    text NOT NULL,
    PRIMARY KEY (user_id, kind)
);

-- name: guard_periodic
SELECT agent_runtime.guard_table('periodic');
