-- What is done for an owner from time to time, by whichever process comes first.

-- name: create_periodic
CREATE TABLE periodic (
    user_id  TEXT NOT NULL,
    kind     TEXT NOT NULL CHECK (kind <> ''),
    -- When it may be claimed: once it is time again, or once a claim has expired.
    due_at   REAL NOT NULL,
    token    TEXT NOT NULL,
    PRIMARY KEY (user_id, kind)
) STRICT;
