-- The queries of `verify`: what a run's evidence is made of besides its pages.

-- name: read_days
-- The days that a pull has pages of.
SELECT DISTINCT period FROM pages WHERE run = :run AND pull = :pull ORDER BY period;

-- name: readings
SELECT period, first_page, outcome FROM readings WHERE run = :run AND pull = :pull;

-- name: row_answers
SELECT transaction_id, period, body, body_sha256 FROM row_answers WHERE run = :run AND pull = :pull
ORDER BY transaction_id;

-- name: late_periods
SELECT DISTINCT period FROM late_rows WHERE run = :run ORDER BY period;

-- name: late_ids
SELECT transaction_id FROM late_rows WHERE run = :run AND period = :period;

-- name: moved_ids
-- The rows that a run passed over on a list of that day.
SELECT transaction_id FROM moved_rows WHERE run = :run AND period = :period;

-- name: moved_rows
SELECT transaction_id, held_by_run FROM moved_rows WHERE run = :run ORDER BY held_by_run, transaction_id;

-- name: moved_among
SELECT transaction_id FROM moved_rows WHERE run = :run AND transaction_id IN (SELECT value FROM json_each(:ids));

-- name: late_among
SELECT transaction_id FROM late_rows
WHERE account = :account AND transaction_id IN (SELECT value FROM json_each(:ids)) AND +run = :run;

-- name: written_off_among
SELECT transaction_id FROM outstanding
WHERE account = :account AND transaction_id IN (SELECT value FROM json_each(:ids)) AND written_off_ms IS NOT NULL;

-- name: frozen_pulls
-- The pulls of a run that were frozen, the last one first.
SELECT DISTINCT pull FROM attempts WHERE run = :run ORDER BY pull DESC;

-- name: corrections
SELECT period, was, is_now FROM differences WHERE taken_by_run = :run AND decision = 'settle'
ORDER BY period, transaction_id, revision;
