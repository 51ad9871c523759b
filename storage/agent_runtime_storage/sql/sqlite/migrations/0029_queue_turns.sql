-- What each pick and each enqueueing asks for, which otherwise read all that works or waits: the
-- newest turn of a share, that of what works, and the leases that have expired.

-- name: index_queue_of_share
CREATE INDEX queue_of_share ON queue (user_id, share, tag)
    WHERE state IN ('waiting', 'behind', 'working');

-- name: index_queue_working_turn
CREATE INDEX queue_working_turn ON queue (tag) WHERE state = 'working';

-- name: index_runs_by_lease
CREATE INDEX runs_by_lease ON runs (lease_until) WHERE status = 'running';
