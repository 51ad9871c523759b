-- Export threads in pages, and import them.  Each section has three blocks: one returns the sizes
-- by key, one the rows of a range of keys, in the order of the section's columns, and one writes a
-- row.  A body is three columns, as in `log.sql`.

-- name: export_stamp
-- These values change with every change of a thread's exported rows.
SELECT t.id, t.hidden, t.updated_at, t.head, t.active_run, t.last_seq, t.last_activation,
       t.last_event, t.last_inbox, t.last_usage, t.created_at,
       (SELECT max(updated_at) FROM runs WHERE user_id = t.user_id AND thread_id = t.id),
       (SELECT count(*) FROM inbox WHERE user_id = t.user_id AND thread_id = t.id),
       (SELECT count(*) FROM jobs WHERE user_id = t.user_id AND thread_id = t.id),
       (SELECT count(finished_at) FROM jobs WHERE user_id = t.user_id AND thread_id = t.id),
       (SELECT sum(attempts){as_bigint} FROM jobs WHERE user_id = t.user_id AND thread_id = t.id),
       (SELECT max(due_at) FROM jobs WHERE user_id = t.user_id AND thread_id = t.id),
       (SELECT count(*) FROM vectors WHERE user_id = t.user_id AND thread_id = t.id)
FROM threads AS t
WHERE t.user_id = :user_id AND t.id IN {family_filter}
ORDER BY t.created_at, t.id;

-- name: export_thread
SELECT id, title, metadata, head, last_seq, last_activation, last_event, last_inbox, last_usage,
       active_run, created_at, updated_at
FROM threads WHERE user_id = :user_id AND id = :thread_id AND hidden = '';

-- name: section_columns
CASE WHEN x.blob IS NULL THEN '' ELSE coalesce(b.object, b.codec, 'lost') END, b.data

-- name: export_nodes_sizes
SELECT x.id, length(x.body) + coalesce(b.object_bytes, length(b.data), 0)
FROM nodes AS x {section_blob_columns}
WHERE x.user_id = :user_id AND x.thread_id = :thread_id AND x.id > :after
ORDER BY x.id LIMIT :limit;

-- name: export_nodes
SELECT x.id, x.parent_id, x.kind, x.status, x.role, x.run_id, x.activation_id,
       x.body, {section_columns}, x.tokens, x.created_at
FROM nodes AS x {section_blob_columns}
WHERE x.user_id = :user_id AND x.thread_id = :thread_id AND x.id > :after AND x.id <= :last
ORDER BY x.id;

-- name: export_calls_sizes
SELECT x.node_id, sum(length(x.body) + coalesce(b.object_bytes, length(b.data), 0)){as_bigint}
FROM calls AS x {section_blob_columns}
WHERE x.user_id = :user_id AND x.thread_id = :thread_id AND x.node_id > :after
GROUP BY x.node_id ORDER BY x.node_id LIMIT :limit;

-- name: export_calls
SELECT x.node_id, x.position, x.tool, x.status, x.outcome, x.body, {section_columns}, x.shown,
       x.tokens
FROM calls AS x {section_blob_columns}
WHERE x.user_id = :user_id AND x.thread_id = :thread_id
  AND x.node_id > :after AND x.node_id <= :last
ORDER BY x.node_id, x.position;

-- name: export_observations_sizes
SELECT x.id, length(x.body) + coalesce(b.object_bytes, length(b.data), 0)
FROM observations AS x {section_blob_columns}
WHERE x.user_id = :user_id AND x.thread_id = :thread_id AND x.id > :after
ORDER BY x.id LIMIT :limit;

-- name: export_observations
SELECT x.id, x.level, x.parent_id, x.first_id, x.last_id, x.parts, x.provisional, x.run_id,
       x.body, {section_columns}, x.tokens, x.created_at
FROM observations AS x {section_blob_columns}
WHERE x.user_id = :user_id AND x.thread_id = :thread_id AND x.id > :after AND x.id <= :last
ORDER BY x.id;

-- name: export_plans_sizes
SELECT x.id, length(x.body) + coalesce(b.object_bytes, length(b.data), 0)
FROM plans AS x {section_blob_columns}
WHERE x.user_id = :user_id AND x.thread_id = :thread_id AND x.id > :after
ORDER BY x.id LIMIT :limit;

-- name: export_plans
SELECT x.id, x.node_id, x.call_id, x.run_id, x.body, {section_columns}, x.created_at
FROM plans AS x {section_blob_columns}
WHERE x.user_id = :user_id AND x.thread_id = :thread_id AND x.id > :after AND x.id <= :last
ORDER BY x.id;

-- name: export_events_sizes
SELECT id, length(data) FROM events
WHERE user_id = :user_id AND thread_id = :thread_id AND id > :after
ORDER BY id LIMIT :limit;

-- name: export_events
SELECT id, run_id, kind, node_id, data, created_at FROM events
WHERE user_id = :user_id AND thread_id = :thread_id AND id > :after AND id <= :last
ORDER BY id;

-- name: export_usage_sizes
SELECT id, 100 FROM usage
WHERE user_id = :user_id AND thread_id = :thread_id AND id > :after
ORDER BY id LIMIT :limit;

-- name: export_usage
SELECT id, run_id, root_run_id, node_id, purpose, model, prompt_tokens, cached_tokens,
       cache_write_tokens, completion_tokens, counted_tokens, cost, reported, created_at
FROM usage
WHERE user_id = :user_id AND thread_id = :thread_id AND id > :after AND id <= :last
ORDER BY id;

-- name: export_inbox_sizes
SELECT x.id, length(x.body) + coalesce(b.object_bytes, length(b.data), 0)
FROM inbox AS x {section_blob_columns}
WHERE x.user_id = :user_id AND x.thread_id = :thread_id AND x.id > :after
ORDER BY x.id LIMIT :limit;

-- name: export_inbox
SELECT x.id, x.run_id, x.kind, x.body, {section_columns}, x.created_at
FROM inbox AS x {section_blob_columns}
WHERE x.user_id = :user_id AND x.thread_id = :thread_id AND x.id > :after AND x.id <= :last
ORDER BY x.id;

-- name: export_jobs_sizes
SELECT x.id, length(x.payload) + coalesce(b.object_bytes, length(b.data), 0)
FROM jobs AS x {section_blob_columns}
WHERE x.user_id = :user_id AND x.thread_id = :thread_id AND x.id > :after
ORDER BY x.id LIMIT :limit;

-- name: export_jobs
-- A claim belongs to a process that uses this database; in the copy the job is ready again.
SELECT x.id, x.kind, x.key, x.payload, {section_columns},
       CASE x.status WHEN 'claimed' THEN 'ready' ELSE x.status END, x.attempts, x.due_at,
       x.detail, x.created_at, x.finished_at, x.token
FROM jobs AS x {section_blob_columns}
WHERE x.user_id = :user_id AND x.thread_id = :thread_id AND x.id > :after AND x.id <= :last
ORDER BY x.id;

-- name: export_files_sizes
SELECT x.id, coalesce(b.object_bytes, length(b.data), 0)
FROM files AS x {section_blob_columns}
WHERE x.user_id = :user_id AND x.thread_id = :thread_id AND x.id > :after
ORDER BY x.id LIMIT :limit;

-- name: export_files
SELECT x.id, x.kind, x.origin, x.name, x.media_type, x.bytes, {no_bytes}, {section_columns},
       x.created_at
FROM files AS x {section_blob_columns}
WHERE x.user_id = :user_id AND x.thread_id = :thread_id AND x.id > :after AND x.id <= :last
ORDER BY x.id;

-- name: export_questions_sizes
SELECT id, length(body) + length(answer) FROM questions
WHERE user_id = :user_id AND thread_id = :thread_id AND id > :after
ORDER BY id LIMIT :limit;

-- name: export_questions
SELECT id, run_id, node_id, position, kind, body, status, answer, asked_at, expires_at, answered_at
FROM questions
WHERE user_id = :user_id AND thread_id = :thread_id AND id > :after AND id <= :last
ORDER BY id;

-- name: export_approvals_sizes
SELECT id, length(arguments) FROM approvals
WHERE user_id = :user_id AND thread_id = :thread_id AND id > :after
ORDER BY id LIMIT :limit;

-- name: export_approvals
SELECT id, tool, arguments, binding, agent, created_at
FROM approvals
WHERE user_id = :user_id AND thread_id = :thread_id AND id > :after AND id <= :last
ORDER BY id;

-- name: import_approvals
INSERT INTO approvals (user_id, thread_id, id, tool, arguments, binding, agent, created_at)
VALUES (:user_id, :thread_id, :id, :tool, :arguments, :binding, :agent, :created_at);

-- name: import_thread
INSERT INTO threads (user_id, id, title, metadata, last_seq, last_activation, last_event,
                     last_inbox, last_usage, created_at, updated_at, hidden)
VALUES (:user_id, :id, :title, :metadata, :last_seq, :last_activation, :last_event,
        :last_inbox, :last_usage, :created_at, {now}, :token);

-- name: import_touch
UPDATE threads SET updated_at = {now}
WHERE user_id = :user_id AND hidden = :token;

-- name: import_members
SELECT id, hidden, last_seq, last_activation, last_event, last_usage
FROM threads WHERE user_id = :user_id AND hidden = :token;

-- name: import_runs
INSERT INTO runs (user_id, id, thread_id, parent_run_id, root_run_id, agent, status, stop_reason,
                  detail, task_id, steps, max_steps, cancel_requested, spec, output, output_blob,
                  epoch, budget_tokens, budget_cost, tree_reserved_tokens, tree_reserved_cost,
                  tree_settled_tokens, tree_settled_cost, tree_unsettled_tokens,
                  tree_unsettled_cost, own_reserved_tokens, own_reserved_cost, created_at,
                  updated_at, finished_at, worked_seconds, commit_id)
VALUES (:user_id, :id, :thread_id, :parent_run_id, :root_run_id, :agent, :status, :stop_reason,
        :detail, :task_id, :steps, :max_steps, :cancel_requested, :spec, :output, :output_blob,
        :epoch, :budget_tokens, :budget_cost, :tree_reserved_tokens, :tree_reserved_cost,
        :tree_settled_tokens, :tree_settled_cost, :tree_unsettled_tokens,
        :tree_unsettled_cost, :own_reserved_tokens, :own_reserved_cost, :created_at,
        :updated_at, :finished_at, :worked_seconds, :commit_id);

-- name: import_nodes
INSERT INTO nodes (user_id, thread_id, id, parent_id, kind, status, role, run_id, activation_id,
                   body, blob, tokens, created_at)
VALUES (:user_id, :thread_id, :id, :parent_id, :kind, :status, :role, :run_id, :activation_id,
        :body, :body_blob, :tokens, :created_at);

-- name: import_calls
INSERT INTO calls (user_id, thread_id, node_id, position, tool, status, outcome, body, blob, shown,
                   tokens)
VALUES (:user_id, :thread_id, :node_id, :position, :tool, :status, :outcome, :body, :body_blob,
        :shown, :tokens);

-- name: import_activations
INSERT INTO activations (user_id, thread_id, id, anchor, run_id, cause, body, blob, prefix_blob,
                         created_at, parts)
VALUES (:user_id, :thread_id, :id, :anchor, :run_id, :cause, :body, :body_blob, :prefix_blob,
        :created_at, :parts);

-- name: import_observations
INSERT INTO observations (user_id, thread_id, id, level, parent_id, first_id, last_id, parts,
                          provisional, run_id, body, blob, tokens, created_at)
VALUES (:user_id, :thread_id, :id, :level, :parent_id, :first_id, :last_id, :parts,
        :provisional, :run_id, :body, :body_blob, :tokens, :created_at);

-- name: import_plans
INSERT INTO plans (user_id, thread_id, id, node_id, call_id, run_id, body, blob, created_at)
VALUES (:user_id, :thread_id, :id, :node_id, :call_id, :run_id, :body, :body_blob, :created_at);

-- name: import_events
INSERT INTO events (user_id, thread_id, id, run_id, kind, node_id, data, created_at)
VALUES (:user_id, :thread_id, :id, :run_id, :kind, :node_id, :data, :created_at);

-- name: import_usage
INSERT INTO usage (user_id, thread_id, id, run_id, root_run_id, node_id, purpose, model,
                   prompt_tokens, cached_tokens, cache_write_tokens, completion_tokens,
                   counted_tokens, cost, reported, created_at)
VALUES (:user_id, :thread_id, :id, :run_id, :root_run_id, :node_id, :purpose, :model,
        :prompt_tokens, :cached_tokens, :cache_write_tokens, :completion_tokens,
        :counted_tokens, :cost, :reported, :created_at);

-- name: import_inbox
INSERT INTO inbox (user_id, thread_id, id, run_id, kind, body, blob, created_at)
VALUES (:user_id, :thread_id, :id, :run_id, :kind, :body, :body_blob, :created_at);

-- name: import_jobs
INSERT INTO jobs (user_id, id, thread_id, kind, key, payload, blob, status, attempts, due_at,
                  detail, created_at, finished_at, token)
VALUES (:user_id, :id, :thread_id, :kind, :key, :payload, :payload_blob, :status, :attempts,
        :due_at, :detail, :created_at, :finished_at, :token);

-- name: import_files
INSERT INTO files (user_id, thread_id, id, kind, origin, name, media_type, bytes, blob, created_at)
VALUES (:user_id, :thread_id, :id, :kind, :origin, :name, :media_type, :bytes, :content_blob,
        :created_at);

-- name: import_questions
INSERT INTO questions (user_id, id, thread_id, run_id, node_id, position, kind, body, status,
                       answer, asked_at, expires_at, answered_at)
VALUES (:user_id, :id, :thread_id, :run_id, :node_id, :position, :kind, :body, :status,
        :answer, :asked_at, :expires_at, :answered_at);

-- name: import_link
-- For a run that came before its parent.
UPDATE runs SET parent_run_id = :parent_run_id, root_run_id = :root_run_id
WHERE user_id = :user_id AND id = :id;

-- name: import_root
UPDATE runs SET root_run_id = :root_run_id WHERE user_id = :user_id AND id = :id;

-- name: import_open_node
UPDATE runs SET open_node = :open_node
WHERE user_id = :user_id AND id = :id AND EXISTS (
    SELECT 1 FROM nodes AS n
    WHERE n.user_id = :user_id AND n.thread_id = runs.thread_id AND n.id = :open_node
      AND n.status = 'open');

-- name: import_show
-- Makes the thread visible, if its head is a closed node and its active run is an unfinished one.
UPDATE threads
SET hidden = '', head = :head, active_run = :active_run, updated_at = :updated_at
WHERE user_id = :user_id AND id = :id AND hidden = :token
  AND (:head{as_bigint} IS NULL OR EXISTS (
      SELECT 1 FROM nodes
      WHERE user_id = :user_id AND thread_id = :id AND id = :head AND status = 'closed'))
  AND (:active_run{as_text} IS NULL OR EXISTS (
      SELECT 1 FROM runs
      WHERE user_id = :user_id AND id = :active_run AND thread_id = :id
        AND status IN ('queued', 'running', 'suspended')));

-- name: export_runs_sizes
SELECT x.id, length(x.spec) + length(x.output) + coalesce(b.object_bytes, length(b.data), 0)
FROM runs AS x
{output_blob}
WHERE x.user_id = :user_id AND x.thread_id = :thread_id AND x.id > :after
ORDER BY x.id LIMIT :limit;

-- name: export_runs
SELECT x.id, x.parent_run_id, x.root_run_id, x.agent, x.status, x.stop_reason, x.detail,
       x.task_id, x.open_node, x.steps, x.max_steps, x.cancel_requested, x.spec,
       x.output,
       CASE WHEN x.output_blob IS NULL THEN '' ELSE coalesce(b.object, b.codec, 'lost') END, b.data,
       x.epoch, x.budget_tokens, x.budget_cost, x.tree_reserved_tokens, x.tree_reserved_cost,
       x.tree_settled_tokens, x.tree_settled_cost, x.tree_unsettled_tokens, x.tree_unsettled_cost,
       x.own_reserved_tokens, x.own_reserved_cost, x.created_at, x.updated_at, x.finished_at,
       -- A process that died worked at least until it last wrote.
       x.worked_seconds + coalesce({greatest}(x.updated_at - x.working_since, 0), 0), x.commit_id
FROM runs AS x
{output_blob}
WHERE x.user_id = :user_id AND x.thread_id = :thread_id AND x.id > :after AND x.id <= :last
ORDER BY x.id;

-- name: export_activations_sizes
SELECT x.id, length(x.body) + coalesce(b.object_bytes, length(b.data), 0)
           + coalesce(p.object_bytes, length(p.data), 0)
FROM activations AS x {section_blob_columns} {prefix_blob}
WHERE x.user_id = :user_id AND x.thread_id = :thread_id AND x.id > :after
ORDER BY x.id LIMIT :limit;

-- name: export_activations
SELECT x.id, x.anchor, x.run_id, x.cause, x.body, {section_columns},
       {no_bytes}, coalesce(p.object, p.codec, 'lost'), p.data, x.created_at, x.parts
FROM activations AS x {section_blob_columns} {prefix_blob}
WHERE x.user_id = :user_id AND x.thread_id = :thread_id AND x.id > :after AND x.id <= :last
ORDER BY x.id;
