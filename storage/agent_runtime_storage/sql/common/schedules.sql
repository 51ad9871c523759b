-- Schedules: runs that are enqueued by the clock.

-- name: add_schedule
INSERT INTO schedules (user_id, id, cron, zone, missed, next_at, agent, run, created_at)
VALUES (:user_id, :id, :cron, :zone, :missed, :next_at, :agent, :run, {now});

-- name: schedules_now
SELECT {now};

-- name: schedule_columns
SELECT user_id, id, cron, zone, missed, paused, next_at, last_at, run, created_at, {now}
FROM schedules

-- name: schedules_of_user
{schedule_columns}
WHERE user_id = :user_id AND (:id{as_text} IS NULL OR id = :id) ORDER BY id LIMIT :limit;

-- name: schedules_due
-- Of all owners.
{schedule_columns}
WHERE paused = 0 AND next_at <= {now} ORDER BY next_at LIMIT :limit;

-- name: pause_schedule
-- A resumed schedule gets a new time, so what came due during the pause is not made up.
UPDATE schedules SET paused = :paused, next_at = :next_at
WHERE user_id = :user_id AND id = :id;

-- name: remove_schedule
DELETE FROM schedules WHERE user_id = :user_id AND id = :id;

-- name: advance_schedule
-- A second process finds another time, and misses.
UPDATE schedules SET next_at = :next_at, last_at = coalesce(:last_at{as_double}, last_at)
WHERE user_id = :user_id AND id = :id AND next_at = :was{as_double} AND paused = 0;
