-- What the HTTP service keeps: its users' tokens, and the requests that may be sent twice.

-- name: create_tokens
CREATE TABLE tokens (
    user_id     text COLLATE "C" NOT NULL CHECK (user_id <> ''),
    id          text COLLATE "C" NOT NULL CHECK (id <> ''),
    name        text NOT NULL,
    -- The beginning of the token, by which its owner recognises it.
    prefix      text NOT NULL,
    -- SHA-256 of the token, which is random and long, so that a slow hash would add nothing.
    hash        bytea NOT NULL CHECK (length(hash) = 32),
    created_at  double precision NOT NULL,
    expires_at  double precision,
    used_at     double precision,
    revoked_at  double precision,
    PRIMARY KEY (user_id, id)
);

-- name: index_tokens_by_hash
CREATE UNIQUE INDEX tokens_by_hash ON tokens (hash);

-- name: create_requests
CREATE TABLE requests (
    user_id     text COLLATE "C" NOT NULL CHECK (user_id <> ''),
    key         text COLLATE "C" NOT NULL CHECK (key <> ''),
    -- SHA-256 of what was asked: a key may not be used for something else.
    digest      bytea NOT NULL CHECK (length(digest) = 32),
    -- The id of what the request creates, the same for each attempt.
    made_id     text NOT NULL,
    claim       text NOT NULL,
    claimed_at  double precision NOT NULL,
    status      bigint,
    body        bytea,
    PRIMARY KEY (user_id, key)
);

-- name: index_requests_by_time
CREATE INDEX requests_by_time ON requests (user_id, claimed_at);

-- name: guard_tables
SELECT agent_runtime.guard_table(name) FROM unnest(ARRAY['tokens', 'requests']) AS name;
