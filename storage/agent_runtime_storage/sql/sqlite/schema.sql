-- Queries of the migrations.

-- name: create_schema_migrations
CREATE TABLE IF NOT EXISTS schema_migrations (
    version     INTEGER NOT NULL PRIMARY KEY,
    name        TEXT    NOT NULL,
    checksum    TEXT    NOT NULL,
    applied_at  REAL    NOT NULL
) STRICT;

-- name: schema_tables
SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\_%' ESCAPE '\';

-- name: schema_applied
SELECT version, name, checksum FROM schema_migrations ORDER BY version;

-- name: schema_record
-- Affects no row if another process was faster, and the migration's batch misses.
INSERT INTO schema_migrations (version, name, checksum, applied_at)
VALUES (:version, :name, :checksum, unixepoch('subsec'))
ON CONFLICT (version) DO NOTHING;
