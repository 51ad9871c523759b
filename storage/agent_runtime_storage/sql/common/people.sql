-- Questions of runs to people, and the approvals that people granted.

-- name: question_status_columns
-- Nothing writes that a question expires; it follows from the time.
CASE WHEN q.status = 'open' AND q.expires_at <= {now} THEN 'expired'
     ELSE q.status END

-- name: question_select
SELECT q.id, q.thread_id, q.run_id, q.node_id, q.position, q.kind, q.body,
       {question_status_columns},
       q.answer, q.asked_at, q.expires_at, q.answered_at
FROM questions AS q
JOIN threads AS t ON t.user_id = q.user_id AND t.id = q.thread_id AND t.hidden = ''

-- name: question
{question_select}
WHERE q.user_id = :user_id AND q.id = :id;

-- name: question_filter
(:thread_id{as_text} IS NULL OR q.thread_id = :thread_id)
  AND (:status{as_text} IS NULL OR {question_status_columns} = :status)
ORDER BY q.asked_at DESC, q.id DESC LIMIT :limit

-- name: questions
{question_select}
WHERE q.user_id = :user_id AND {question_filter};

-- name: questions_open
-- The first condition is that of the partial index `questions_open`.
{question_select}
WHERE q.user_id = :user_id AND q.status = 'open' AND {question_filter};

-- name: questions_of_thread
{question_select}
WHERE q.user_id = :user_id AND q.thread_id = :thread_id AND {question_filter};

-- name: questions_of_run
{question_select}
WHERE q.user_id = :user_id AND q.run_id = :run_id AND {question_filter};

-- name: ask
INSERT INTO questions (user_id, id, thread_id, run_id, node_id, position, kind, body, status,
                       answer, asked_at, expires_at, answered_at)
VALUES (:user_id, :id, :thread_id, :run_id, :node_id, :position, :kind, :body, 'open',
        '{}', {now}, {now} + :seconds, NULL);

-- name: answer
-- Only a suspended run can take an answer; one that is being cancelled will not.
UPDATE questions
SET status = 'answered', answer = :answer, answered_at = {now}
WHERE user_id = :user_id AND id = :id AND status = 'open' AND expires_at > {now}
  AND EXISTS (SELECT 1 FROM runs AS r
              WHERE r.user_id = :user_id AND r.id = questions.run_id
                AND r.status = 'suspended' AND r.cancel_requested = 0);

-- name: withdraw
-- One whose time is up is `open` here too, and is withdrawn with the rest.
UPDATE questions SET status = 'withdrawn'
WHERE user_id = :user_id AND run_id = :run_id AND status = 'open';

-- name: remember_approval
INSERT INTO approvals (user_id, thread_id, id, tool, arguments, binding, agent, created_at)
VALUES (:user_id, :thread_id, :id, :tool, :arguments, :binding, :agent, {now});

-- name: approvals
SELECT a.thread_id, a.id, a.tool, a.arguments, a.created_at, a.binding, a.agent
FROM approvals AS a
JOIN threads AS t ON t.user_id = a.user_id AND t.id = a.thread_id AND t.hidden = ''
WHERE a.user_id = :user_id AND a.thread_id = :thread_id
ORDER BY a.created_at, a.id;

-- name: forget_approval
DELETE FROM approvals WHERE user_id = :user_id AND thread_id = :thread_id AND id = :id;
