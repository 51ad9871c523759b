-- The newest turn of a share, and of what works: without these each enqueueing reads all of them.

-- name: index_queue_of_share
CREATE INDEX queue_of_share ON queue (user_id, share, tag)
    WHERE state IN ('waiting', 'behind', 'working');

-- name: index_queue_working_turn
CREATE INDEX queue_working_turn ON queue (tag) WHERE state = 'working';
