-- Spending by day and by thread, and checks of reservations against their limits.
--
-- A day counts what was booked on it, and every open reservation.  A thread has no row of its own:
-- it is the sum over the roots of its run trees, so nothing is counted twice.

-- name: book_day
INSERT INTO spending (user_id, day, settled_tokens, settled_cost, unsettled_tokens, unsettled_cost)
VALUES (:user_id, {today_filter}, :settle_tokens, :settle_cost, :unsettle_tokens,
        :unsettle_cost)
ON CONFLICT (user_id, day) DO UPDATE
SET settled_tokens = spending.settled_tokens + excluded.settled_tokens,
    settled_cost = spending.settled_cost + excluded.settled_cost,
    unsettled_tokens = spending.unsettled_tokens + excluded.unsettled_tokens,
    unsettled_cost = spending.unsettled_cost + excluded.unsettled_cost;

-- name: book_unsettled_filter
ON CONFLICT (user_id, day) DO UPDATE
SET unsettled_tokens = spending.unsettled_tokens + excluded.unsettled_tokens,
    unsettled_cost = spending.unsettled_cost + excluded.unsettled_cost

-- name: book_own
-- As `unsettle_own`, on the day.
INSERT INTO spending (user_id, day, unsettled_tokens, unsettled_cost)
SELECT user_id, {today_filter}, own_reserved_tokens, own_reserved_cost
FROM runs
WHERE user_id = :user_id AND id = :run_id AND (own_reserved_tokens > 0 OR own_reserved_cost > 0)
{book_unsettled_filter};

-- name: book_family
INSERT INTO spending (user_id, day, unsettled_tokens, unsettled_cost)
SELECT user_id, {today_filter}, sum(own_reserved_tokens){as_bigint},
       sum(own_reserved_cost){as_bigint}
FROM runs
WHERE user_id = :user_id AND thread_id IN {family_filter}
  AND (own_reserved_tokens > 0 OR own_reserved_cost > 0)
GROUP BY user_id
{book_unsettled_filter};

-- name: held_filter
-- The condition is that of the partial index `runs_at_work`.
SELECT coalesce(sum(own_reserved_tokens), 0){as_bigint} AS tokens,
       coalesce(sum(own_reserved_cost), 0){as_bigint} AS cost
FROM runs WHERE user_id = :user_id AND status = 'running'

-- name: room_of_day
-- Runs after the reservation was made, so the sums include it.
SELECT 1
FROM runs AS root
CROSS JOIN ({held_filter}) AS held
LEFT JOIN spending AS day ON day.user_id = root.user_id AND day.day = {today_filter}
WHERE root.user_id = :user_id AND root.id = :root_run_id
  AND (:tokens{as_bigint} IS NULL
       OR coalesce(day.settled_tokens + day.unsettled_tokens, 0) + held.tokens
          + CASE WHEN :below = 1 THEN root.kept_tokens ELSE 0 END <= :tokens)
  AND (:cost{as_bigint} IS NULL
       OR coalesce(day.settled_cost + day.unsettled_cost, 0) + held.cost
          + CASE WHEN :below = 1 THEN root.kept_cost ELSE 0 END <= :cost);

-- name: room_of_thread
SELECT 1
FROM runs AS root
{ordered_join} runs AS r ON r.user_id = root.user_id AND r.thread_id = root.thread_id
    AND r.parent_run_id IS NULL
WHERE root.user_id = :user_id AND root.id = :root_run_id
GROUP BY root.kept_tokens, root.kept_cost
HAVING (:tokens{as_bigint} IS NULL
        OR sum(r.tree_settled_tokens + r.tree_unsettled_tokens + r.tree_reserved_tokens)
           + CASE WHEN :below = 1 THEN root.kept_tokens ELSE 0 END <= :tokens)
   AND (:cost{as_bigint} IS NULL
        OR sum(r.tree_settled_cost + r.tree_unsettled_cost + r.tree_reserved_cost)
           + CASE WHEN :below = 1 THEN root.kept_cost ELSE 0 END <= :cost);

-- name: room_of_steps
-- A run with a reservation is making a step that is not recorded yet.
SELECT 1
FROM runs
WHERE user_id = :user_id AND root_run_id = :root_run_id
GROUP BY user_id
HAVING sum(steps + CASE WHEN status = 'running' AND own_reserved_tokens > 0 THEN 1 ELSE 0 END)
       + :kept <= :most;

-- name: tree_steps
SELECT coalesce(sum(steps), 0){as_bigint} FROM runs
WHERE user_id = :user_id AND root_run_id = :root_run_id;

-- name: spending_of_day
SELECT coalesce(day.settled_tokens, 0), coalesce(day.settled_cost, 0),
       coalesce(day.unsettled_tokens, 0), coalesce(day.unsettled_cost, 0), held.tokens, held.cost,
       ({today_filter} + 1) * 86400.0{as_double}
FROM ({held_filter}) AS held
LEFT JOIN spending AS day ON day.user_id = :user_id AND day.day = {today_filter};

-- name: unpriced_of_tree
SELECT count(*) FROM usage
WHERE user_id = :user_id AND root_run_id = :root_run_id AND cost IS NULL;

-- name: unpriced_of_thread
SELECT count(*) FROM usage AS u
JOIN runs AS r ON r.user_id = u.user_id AND r.id = u.root_run_id
WHERE u.user_id = :user_id AND r.thread_id = :thread_id AND u.cost IS NULL;

-- name: unpriced_of_day
SELECT count(*) FROM usage
WHERE user_id = :user_id AND created_at >= {today_filter} * 86400.0{as_double} AND cost IS NULL;

-- name: spending_of_thread
SELECT coalesce(sum(tree_settled_tokens), 0){as_bigint},
       coalesce(sum(tree_settled_cost), 0){as_bigint},
       coalesce(sum(tree_unsettled_tokens), 0){as_bigint},
       coalesce(sum(tree_unsettled_cost), 0){as_bigint},
       coalesce(sum(tree_reserved_tokens), 0){as_bigint},
       coalesce(sum(tree_reserved_cost), 0){as_bigint},
       NULL{as_double}
FROM runs WHERE user_id = :user_id AND thread_id = :thread_id AND parent_run_id IS NULL;

-- name: holders
SELECT id FROM runs
WHERE user_id = :user_id AND status = 'running'
  AND (own_reserved_tokens > 0 OR own_reserved_cost > 0);

-- name: worked
SELECT worked_seconds + coalesce({now} - working_since, 0) FROM runs
WHERE user_id = :user_id AND id = :run_id;
