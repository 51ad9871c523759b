-- What the HTTP service keeps: its users' tokens, and the requests that may be sent twice.

-- name: create_tokens
CREATE TABLE tokens (
    user_id     TEXT NOT NULL CHECK (user_id <> ''),
    id          TEXT NOT NULL CHECK (id <> ''),
    name        TEXT NOT NULL,
    -- The beginning of the token, by which its owner recognises it.
    prefix      TEXT NOT NULL,
    -- SHA-256 of the token, which is random and long, so that a slow hash would add nothing.
    hash        BLOB NOT NULL CHECK (length(hash) = 32),
    created_at  REAL NOT NULL,
    expires_at  REAL,
    used_at     REAL,
    revoked_at  REAL,
    PRIMARY KEY (user_id, id)
) STRICT;

-- name: index_tokens_by_hash
CREATE UNIQUE INDEX tokens_by_hash ON tokens (hash);

-- name: create_requests
CREATE TABLE requests (
    user_id     TEXT NOT NULL CHECK (user_id <> ''),
    key         TEXT NOT NULL CHECK (key <> ''),
    -- SHA-256 of what was asked: a key may not be used for something else.
    digest      BLOB NOT NULL CHECK (length(digest) = 32),
    -- The id of what the request creates, the same for each attempt.
    made_id     TEXT NOT NULL,
    claim       TEXT NOT NULL,
    claimed_at  REAL NOT NULL,
    status      INTEGER,
    body        BLOB,
    PRIMARY KEY (user_id, key)
) STRICT;

-- name: index_requests_by_time
CREATE INDEX requests_by_time ON requests (user_id, claimed_at);
