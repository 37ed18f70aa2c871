-- The queries of a restore. Each begins with a line `-- name: NAME`; parameters and columns go by name.

-- name: restored_at
SELECT restored_at_ms FROM database_facts;

-- name: set_restored_at
UPDATE database_facts SET restored_at_ms = :now_ms;

-- name: forget_empty_lookups
-- An answer from before the back-up's time was true then: what was sent since is not in it.
DELETE FROM empty_lookups;
