-- The queries about rows that are settled, held, owed or late, and about days that are to be listed again.
-- A run holds rows while the attempt that it is at is frozen; one that was rejected holds them too, for the processor may
-- have them, but it has settled nothing.

-- part: holding
EXISTS (SELECT 1 FROM attempts WHERE attempts.run = runs.id AND attempts.number = runs.attempt)

-- name: digest_key
SELECT digest_key FROM database_facts;

-- name: account_number
SELECT number FROM settled_accounts WHERE account = :account;

-- name: insert_settled_id
INSERT INTO settled_ids (account, digest, run) VALUES (:account, :digest, :run)
ON CONFLICT (account, digest, run) DO NOTHING;

-- name: digest_hits
-- Which of these digests another run that holds its rows has written. Hits are few: the runs are looked at last.
WITH hits AS MATERIALIZED (
    SELECT DISTINCT digest, run FROM settled_ids
    WHERE account = :account AND digest IN (SELECT value FROM json_each(:digests)) AND run <> :run)
SELECT hits.digest, hits.run FROM hits JOIN runs ON runs.id = hits.run AND {holding};

-- name: runs_to_index
-- The runs of an account whose rows are not in settled_ids yet: those of older files.
SELECT runs.id AS number FROM runs
WHERE account = :account AND indexed_pull IS NOT pull AND {holding} ORDER BY runs.id;

-- name: mark_indexed
UPDATE runs SET indexed_pull = :pull WHERE id = :run;

-- name: frozen_count
-- How often runs of the account other than this one were frozen: it grows with each freeze, and is another number after
-- any run was forgotten.
SELECT count(*) + 1000000 * (SELECT count(*) FROM forgotten_runs) AS frozen
FROM runs JOIN attempts ON attempts.run = runs.id
WHERE runs.account = :account AND runs.id <> :run;

-- name: late_rows_held
-- Of these rows, those that this run took in late.
SELECT transaction_id, period FROM late_rows
WHERE account = :account AND transaction_id IN (SELECT value FROM json_each(:ids)) AND +run = :run;

-- name: passed_over
-- Of these rows, those that this run passed over because another had them.
SELECT transaction_id FROM moved_rows WHERE run = :run AND transaction_id IN (SELECT value FROM json_each(:ids));

-- name: insert_moved_row
INSERT INTO moved_rows (run, transaction_id, period, held_by_run, is_different)
VALUES (:run, :transaction_id, :period, :held_by_run, :is_different);

-- name: forget_moved_rows
DELETE FROM moved_rows WHERE run = :run;

-- name: moved_rows_of
SELECT moved_rows.transaction_id, moved_rows.period, moved_rows.held_by_run, moved_rows.is_different,
       runs.date AS held_under
FROM moved_rows LEFT JOIN runs ON runs.id = moved_rows.held_by_run WHERE moved_rows.run = :run
ORDER BY moved_rows.transaction_id;

-- name: owed_rows
-- What an account owes of days before one and no run holds: to be asked for. (What a rejected run holds is owed as well,
-- but it is that run's until it is tried again.)
SELECT transaction_id, period, type, currency, amount, fee, available_on_s
FROM outstanding
WHERE account = :account AND period < :before AND taken_by_run IS NULL AND written_off_ms IS NULL
ORDER BY period, transaction_id;

-- name: owed_ids
-- Every row that an account owes and no run holds, whatever its day.
SELECT transaction_id FROM outstanding
WHERE account = :account AND taken_by_run IS NULL AND written_off_ms IS NULL;

-- name: written_off
-- Every row of an account that a person wrote off.
SELECT transaction_id, period FROM outstanding WHERE account = :account AND written_off_ms IS NOT NULL;

-- name: take_owed
UPDATE outstanding SET taken_by_run = :run
WHERE account = :account AND transaction_id = :transaction_id AND taken_by_run IS NULL AND written_off_ms IS NULL;

-- name: forget_taken
UPDATE outstanding SET taken_by_run = NULL WHERE taken_by_run = :run;

-- name: vanished_ids
-- The rows of an account of which it is known that the processor shows them no more.
SELECT DISTINCT transaction_id FROM differences
WHERE account = :account AND kind = 'vanished' AND (decision IS NULL OR decision IN ('settle', 'dismiss'));

-- name: corrected_ids
-- The rows of a day of which other content than at first was settled by now, or waits for a run that is pulled anew.
SELECT DISTINCT transaction_id FROM differences
WHERE account = :account AND period = :period AND decision = 'settle';

-- name: mark_available
-- The run that saw a written-off row available, the first time.
UPDATE outstanding SET available_run = coalesce(available_run, :run)
WHERE account = :account AND transaction_id = :transaction_id AND written_off_ms IS NOT NULL;

-- name: listed_days
-- The posted days of an account before a date, with how often runs of later days have listed them whole, when the last
-- of those listings began, when the day's own pull began, and how many pages the last listing had. A day whose settlement
-- does not hold all rows is listed at least once.
SELECT runs.id AS number, count(day_listings.run) AS listings, max(day_listings.began_at_ms) AS listed_at_ms,
       runs.pull_started_at_ms, runs.window_end_s
FROM runs LEFT JOIN day_listings ON day_listings.account = runs.account AND day_listings.period = runs.date
WHERE runs.account = :account AND runs.state = 'posted' AND runs.date < :before
GROUP BY runs.id
HAVING count(day_listings.run) < :listings
    OR max(coalesce(max(day_listings.began_at_ms), 0), runs.pull_started_at_ms) < runs.window_end_s * 1000 + :age_ms
    OR (runs.covers IN ('none', 'listed') AND count(day_listings.run) = 0)
ORDER BY coalesce(max(day_listings.began_at_ms), 0), runs.date;

-- name: begun_days
-- The earlier days that any pull of this run has begun to read: what it found there may be known to nobody else.
SELECT DISTINCT pages.period FROM pages JOIN runs ON runs.id = pages.run
WHERE pages.run = :run AND pages.period < runs.date;

-- name: last_page_count
-- How many pages a day had when it was last listed.
SELECT coalesce(
    (SELECT page_count FROM day_listings WHERE account = :account AND period = :period
     ORDER BY began_at_ms DESC, run DESC LIMIT 1),
    (SELECT count(*) FROM pages WHERE pages.run = :run AND pages.pull = :pull AND pages.period = :period)) AS pages;

-- name: insert_listing
INSERT INTO day_listings (account, period, run, began_at_ms, page_count)
VALUES (:account, :period, :run, :began_at_ms, :page_count)
ON CONFLICT (account, period, run) DO UPDATE SET began_at_ms = excluded.began_at_ms, page_count = excluded.page_count;

-- name: forget_listings
DELETE FROM day_listings WHERE account = :account AND run = :run;

-- name: insert_row_answer
INSERT INTO row_answers (run, pull, transaction_id, period, body, body_sha256, received_at_ms)
VALUES (:run, :pull, :transaction_id, :period, :body, :body_sha256, :received_at_ms)
ON CONFLICT (run, pull, transaction_id) DO UPDATE
SET period = excluded.period, body = excluded.body, body_sha256 = excluded.body_sha256,
    received_at_ms = excluded.received_at_ms;

-- name: row_answers
SELECT transaction_id, body FROM row_answers WHERE run = :run AND pull = :pull AND period = :period
ORDER BY transaction_id;

-- name: covered_rows
SELECT transaction_id FROM covered_rows WHERE run = :run;

-- name: evidence_periods
-- The days of which a pull has a page or a row.
SELECT period FROM pages WHERE run = :run AND pull = :pull
UNION
SELECT period FROM row_answers WHERE run = :run AND pull = :pull;

-- name: reading
SELECT first_page, outcome FROM readings WHERE run = :run AND pull = :pull AND period = :period;

-- name: droppable_pages
-- Pages of earlier days, listed again by frozen runs of the account, whose bytes nobody needs.
SELECT pages.run, pages.pull, pages.period, pages.number
FROM runs JOIN pages ON pages.run = runs.id AND pages.period <> runs.date
WHERE runs.id = :run AND pages.is_needed = 0 AND pages.body IS NOT NULL AND {holding}
LIMIT :limit;

-- name: drop_page
UPDATE pages SET body = NULL WHERE run = :run AND pull = :pull AND period = :period AND number = :number;
