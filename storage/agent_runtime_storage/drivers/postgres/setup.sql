-- Prepare a database before any migration, and report how it separates owners.

-- name: look
SELECT current_setting('server_version_num')::int8,
       current_user::text,
       EXISTS (SELECT 1 FROM pg_roles
               WHERE rolname = current_user AND (rolsuper OR rolbypassrls)),
       pg_is_in_recovery(),
       to_regnamespace('agent_runtime') IS NOT NULL,
       (SELECT extversion FROM pg_extension WHERE extname = 'vector'),
       (SELECT quote_ident(n.nspname)
        FROM pg_extension AS e JOIN pg_namespace AS n ON n.oid = e.extnamespace
        WHERE e.extname = 'vector'),
       to_regnamespace('public') IS NOT NULL,
       (SELECT count(*) FROM pg_roles
        WHERE rolname IN ('agent_runtime_app', 'agent_runtime_system'));

-- name: roles_usable
-- Whether the login may act as the one role and has the rights of the other.
SELECT coalesce(
    pg_has_role(current_user, to_regrole('agent_runtime_app')::oid,
                CASE WHEN current_setting('server_version_num')::int8 >= 160000
                     THEN 'SET' ELSE 'MEMBER' END)
    AND pg_has_role(current_user, to_regrole('agent_runtime_system')::oid, 'USAGE'),
    false);

-- name: policies
-- The number of tables guarded by the system role, of those guarded by the setting, and of those
-- that the login does not own.
SELECT count(*) FILTER (WHERE NOT p.polroles @> ARRAY[0::oid]),
       count(*) FILTER (WHERE p.polroles @> ARRAY[0::oid]),
       count(*) FILTER (WHERE NOT pg_has_role(current_user, c.relowner, 'USAGE'))
FROM pg_policy AS p JOIN pg_class AS c ON c.oid = p.polrelid
WHERE c.relnamespace = to_regnamespace('agent_runtime') AND p.polname = 'of_system';

-- name: unforced
-- Tables that no policy guards, and which have owners' rows or can be reached by an owner's role.
-- What is readable in `rooms` is no owner's: the name of the database's folder of objects.
SELECT c.relname::text
FROM pg_class AS c
WHERE c.relnamespace = to_regnamespace('agent_runtime') AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
  AND NOT (c.relrowsecurity AND c.relforcerowsecurity)
  AND (EXISTS (SELECT 1 FROM pg_attribute AS a
               WHERE a.attrelid = c.oid AND a.attname = 'user_id' AND NOT a.attisdropped)
       OR EXISTS (SELECT 1 FROM aclexplode(c.relacl) AS one
                  WHERE (c.relname <> 'rooms' OR one.privilege_type <> 'SELECT')
                    AND one.grantee IN (0, coalesce(to_regrole('agent_runtime_app')::oid, 0))))
ORDER BY 1;

-- name: app_bypasses
SELECT 1 FROM pg_roles
WHERE rolname = 'agent_runtime_app' AND (rolsuper OR rolbypassrls);

-- name: lock
SELECT 1 FROM (SELECT pg_advisory_lock(:key)) AS l;

-- name: unlock
SELECT pg_advisory_unlock(:key);

-- name: create_schema
CREATE SCHEMA IF NOT EXISTS agent_runtime;

-- name: create_extension_in_public
CREATE EXTENSION IF NOT EXISTS vector SCHEMA public;

-- name: create_extension
CREATE EXTENSION IF NOT EXISTS vector SCHEMA agent_runtime;

-- name: create_role_app
-- Roles belong to the whole cluster: another database may create them at the same time.
DO $$ BEGIN
    CREATE ROLE agent_runtime_app NOLOGIN;
EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
END $$;

-- name: create_role_system
DO $$ BEGIN
    CREATE ROLE agent_runtime_system NOLOGIN;
EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
END $$;

-- name: grant_roles
-- Version 16 separates the right to use a role from the right to inherit its rights.
DO $$ BEGIN
    IF current_setting('server_version_num')::int8 >= 160000 THEN
        EXECUTE 'GRANT agent_runtime_app TO CURRENT_USER WITH SET TRUE, INHERIT FALSE';
        EXECUTE 'GRANT agent_runtime_system TO CURRENT_USER WITH INHERIT TRUE';
    ELSE
        EXECUTE 'GRANT agent_runtime_app, agent_runtime_system TO CURRENT_USER';
    END IF;
END $$;

-- name: guard_again
SELECT 1 FROM (SELECT agent_runtime.guard_all()) AS g;

-- name: settings
-- For each connection.  No sequential scans: connections cache plans, a plan that was made while a
-- table was small would read all of it for ever, and every query has an index.  No JIT: compiling a
-- query takes longer than running it.  No plans for any values: with many threads the planner takes
-- owner and thread for independent, and one thread for a row or two, so such a plan reads all of a
-- long thread; batches, which find their rows by whole keys, set it otherwise.  The server process's own id
-- differs from what the connection was given where a pooler lies between.
SELECT pg_backend_pid()::bigint,
       set_config('search_path', :path, false),
       set_config('statement_timeout', :statement_timeout, false),
       set_config('lock_timeout', :lock_timeout, false),
       set_config('idle_in_transaction_session_timeout', :idle_timeout, false),
       set_config('default_transaction_isolation', 'read committed', false),
       set_config('enable_seqscan', 'off', false),
       set_config('jit', 'off', false),
       set_config('plan_cache_mode', 'force_custom_plan', false),
       set_config('row_security', 'on', false);

-- name: server_process
SELECT pg_backend_pid()::bigint;
