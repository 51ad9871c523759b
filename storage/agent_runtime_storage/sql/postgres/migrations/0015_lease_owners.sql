-- Who holds a lease is named by its machine and by a random id of its process as well.

-- name: add_lease_machine
ALTER TABLE runs ADD COLUMN lease_machine text NOT NULL DEFAULT '';

-- name: add_lease_instance
ALTER TABLE runs ADD COLUMN lease_instance text NOT NULL DEFAULT '';
