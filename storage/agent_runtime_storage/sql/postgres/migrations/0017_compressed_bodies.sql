-- Bodies come compressed from now on, in their rows as in blobs, which older versions cannot read.
-- So Postgres need not try to compress them.

-- name: store_nodes
ALTER TABLE nodes ALTER COLUMN body SET STORAGE EXTERNAL;

-- name: store_calls
ALTER TABLE calls ALTER COLUMN body SET STORAGE EXTERNAL;

-- name: store_activations
ALTER TABLE activations ALTER COLUMN body SET STORAGE EXTERNAL;

-- name: store_observations
ALTER TABLE observations ALTER COLUMN body SET STORAGE EXTERNAL;

-- name: store_plans
ALTER TABLE plans ALTER COLUMN body SET STORAGE EXTERNAL;

-- name: store_inbox
ALTER TABLE inbox ALTER COLUMN body SET STORAGE EXTERNAL;

-- name: store_jobs
ALTER TABLE jobs ALTER COLUMN payload SET STORAGE EXTERNAL;

-- name: store_blobs
ALTER TABLE blobs ALTER COLUMN data SET STORAGE EXTERNAL;
