-- The queries about rows that were last seen under another day than their own. Parameters and columns go by name.

-- name: elsewhere
-- Of these rows, those that were last seen under another day, and that day.
SELECT transaction_id, period FROM rows_elsewhere
WHERE account = :account AND transaction_id IN (SELECT value FROM json_each(:ids));

-- name: expected
-- Rows of other days that a day's list is to show.
SELECT transaction_id FROM rows_elsewhere WHERE account = :account AND period = :period;

-- name: all_elsewhere
SELECT transaction_id FROM rows_elsewhere WHERE account = :account;

-- name: insert_elsewhere
INSERT INTO rows_elsewhere (account, transaction_id, period, held_by_run)
VALUES (:account, :transaction_id, :period, :held_by_run)
ON CONFLICT (account, transaction_id) DO UPDATE SET period = excluded.period, held_by_run = excluded.held_by_run;

-- name: insert_owed_elsewhere
-- A row that is owed, if it is owed under another day than the one that shows it.
INSERT INTO rows_elsewhere (account, transaction_id, period)
SELECT account, transaction_id, :period FROM outstanding
WHERE account = :account AND transaction_id = :transaction_id AND outstanding.period <> :period
    AND taken_by_run IS NULL AND written_off_ms IS NULL
ON CONFLICT (account, transaction_id) DO UPDATE SET period = excluded.period, held_by_run = NULL;

-- name: forget_elsewhere
DELETE FROM rows_elsewhere
WHERE account = :account AND transaction_id IN (SELECT value FROM json_each(:ids));

-- name: list_again
-- Days that showed rows of a run that holds them no more: the listings of such a day have passed them over.
DELETE FROM day_listings
WHERE account = :account
    AND period IN (SELECT period FROM rows_elsewhere WHERE account = :account AND held_by_run = :run);

-- name: list_day_again
DELETE FROM day_listings WHERE account = :account AND period = :period;

-- name: forget_held
DELETE FROM rows_elsewhere WHERE account = :account AND held_by_run = :run;
