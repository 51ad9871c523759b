-- The leases that a process holds, of all owners.

-- name: held_leases
-- Each lease is an array: owner, run, epoch.
FROM {each_json}(:leases{as_jsonb}) AS l {ordered_join} runs AS r
  ON r.user_id = l.value ->> 0 AND r.id = l.value ->> 1
 AND r.epoch = CAST(l.value ->> 2 AS bigint) AND r.status = 'running'

-- name: poll_leases
SELECT r.user_id, r.id, r.epoch, r.cancel_requested {held_leases};

-- name: renew_leases
-- A row that a commit holds is left out: waiting for it would delay the others, and two
-- transactions that lock several rows in different orders would block each other.
UPDATE runs SET lease_until = {now} + :seconds
WHERE (user_id, id) IN (SELECT r.user_id, r.id {held_leases} {skip_locked})
RETURNING user_id, id, epoch;

-- name: owners_at_work
-- The index of active runs has those that are queued, too; without its condition it is not used.
SELECT DISTINCT user_id FROM runs
WHERE status IN ('queued', 'running', 'suspended') AND status <> 'queued';
