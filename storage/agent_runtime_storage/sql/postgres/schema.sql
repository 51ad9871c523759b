-- Queries of the migrations.

-- name: create_schema_migrations
CREATE TABLE IF NOT EXISTS agent_runtime.schema_migrations (
    version     bigint NOT NULL PRIMARY KEY,
    name        text   NOT NULL,
    checksum    text   NOT NULL,
    applied_at  double precision NOT NULL
);

-- name: schema_tables
SELECT c.relname FROM pg_class AS c
WHERE c.relnamespace = to_regnamespace('agent_runtime') AND c.relkind IN ('r', 'p');

-- name: schema_applied
SELECT version, name, checksum FROM agent_runtime.schema_migrations ORDER BY version;

-- name: schema_record
-- Affects no row if another process was faster, and the migration's batch misses.
INSERT INTO agent_runtime.schema_migrations (version, name, checksum, applied_at)
VALUES (:version, :name, :checksum, extract(epoch FROM clock_timestamp())::double precision)
ON CONFLICT (version) DO NOTHING;
