-- The queries of look-ups. Each begins with a line `-- name: NAME`; parameters and columns go by name.

-- name: days_known
-- An answer from the future was kept while a clock was wrong.
SELECT date FROM runs WHERE account = :account AND date > :after AND state IN ('frozen', 'unknown', 'posted')
UNION
SELECT date FROM empty_lookups
WHERE account = :account AND date > :after AND asked_at_ms > :asked_since_ms AND asked_at_ms <= :now_ms;

-- name: keep_empty_lookup
INSERT INTO empty_lookups (account, date, asked_at_ms) VALUES (:account, :date, :now_ms)
ON CONFLICT (account, date) DO UPDATE SET asked_at_ms = excluded.asked_at_ms;

-- name: forget_old_lookups
DELETE FROM empty_lookups WHERE account = :account AND asked_at_ms <= :before_ms;

-- name: processor
SELECT listed_at_ms FROM processors WHERE url = :url AND key_mode = :key_mode;

-- name: note_processor
INSERT INTO processors (url, key_mode, listed_at_ms) VALUES (:url, :key_mode, :now_ms)
ON CONFLICT (url, key_mode) DO UPDATE SET listed_at_ms = excluded.listed_at_ms;

-- name: restored_at
SELECT restored_at_ms FROM database_facts;
