-- What the inspector reads of a thread: keys and figures, no contents.

-- The rows of a skeleton come as one, of a JSON array for each column: thousands of rows take the
-- database as long, and a program many times as long.

-- name: skeleton_nodes
SELECT {json_column}(id), {json_column}(parent_id), {json_column}(status), {json_column}(role),
       {json_column}(activation_id), {json_column}(tokens), {json_column}(created_at)
FROM (
    SELECT id, parent_id, status, role, activation_id, tokens, created_at FROM nodes
    WHERE user_id = :user_id AND thread_id = :thread_id AND id > :after ORDER BY id
) AS found;

-- name: skeleton_calls
SELECT {json_column}(node_id), {json_column}(tool), {json_column}(outcome)
FROM (
    SELECT node_id, tool, outcome FROM calls
    WHERE user_id = :user_id AND thread_id = :thread_id AND node_id > :after ORDER BY node_id
) AS found;

-- name: skeleton_usage
-- An answer without content has no node.
SELECT {json_column}(node_id), {json_column}(model), {json_column}(prompt_tokens),
       {json_column}(cached_tokens), {json_column}(completion_tokens),
       {json_column}(counted_tokens), {json_column}(cost), {json_column}(reported)
FROM usage
WHERE user_id = :user_id AND thread_id = :thread_id AND purpose = 'step' AND node_id > :after;

-- name: skeleton_events
-- Documents are decoded only for what they have: that takes most of the time.
SELECT {json_column}(node_id), {json_column}(({json_data} ->> 'seconds'){as_double}),
       {json_column}(
           CASE WHEN data LIKE '%"retries"%' THEN ({json_data} ->> 'retries'){as_bigint} END
       ),
       {json_column}(CASE kind WHEN 'note' THEN {json_data} ->> 'source' END)
FROM events
WHERE user_id = :user_id AND thread_id = :thread_id AND kind IN ('answer', 'note')
  AND node_id > :after;

-- name: skeleton_questions
SELECT DISTINCT node_id FROM questions
WHERE user_id = :user_id AND thread_id = :thread_id AND node_id > :after;

-- name: activation_parts
SELECT id, parts FROM activations WHERE user_id = :user_id AND thread_id = :thread_id;

-- name: activations_by_id
SELECT {activation_columns} FROM activations AS a {activation_blobs}
WHERE a.user_id = :user_id AND a.thread_id = :thread_id
  AND a.id IN (SELECT value{as_bigint} FROM {each_text}(:ids{as_jsonb}))
ORDER BY a.id;

-- name: children_of
SELECT id, parent_id FROM nodes
WHERE user_id = :user_id AND thread_id = :thread_id
  AND parent_id IN (SELECT value{as_bigint} FROM {each_text}(:parents{as_jsonb}))
ORDER BY id;

-- name: ended_roots
{run_select}
WHERE r.user_id = :user_id AND r.parent_run_id IS NULL
  AND r.status NOT IN ('queued', 'running', 'suspended')
  AND (r.created_at < :before OR (r.created_at = :before AND r.id < :before_id))
  AND {visible_run_filter}
ORDER BY r.created_at DESC, r.id DESC LIMIT :limit;

-- name: active_roots
-- The condition on the status is that of the partial index `runs_active`.
{run_select}
WHERE r.user_id = :user_id AND r.status IN ('queued', 'running', 'suspended')
  AND r.parent_run_id IS NULL AND {visible_run_filter}
ORDER BY r.updated_at DESC, r.id DESC LIMIT :limit;

-- name: last_prompts
SELECT prompt_tokens FROM usage
WHERE user_id = :user_id AND thread_id = :thread_id AND run_id = :run_id AND purpose = 'step'
ORDER BY id DESC LIMIT :limit;

-- name: last_start
-- The number alone comes from the index `run_starts`; SQLite reads whole rows by their key.
SELECT data FROM events
WHERE user_id = :user_id AND thread_id = :thread_id AND id = (
    SELECT max(id) FROM events
    WHERE user_id = :user_id AND thread_id = :thread_id AND kind = 'run-start'
);

-- name: last_model
SELECT model FROM usage
WHERE user_id = :user_id AND thread_id = :thread_id AND run_id = :run_id AND purpose = 'step'
ORDER BY id DESC LIMIT 1;
