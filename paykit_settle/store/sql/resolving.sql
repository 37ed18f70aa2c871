-- The queries of what people decide about runs. Each begins with a line `-- name: NAME`; parameters and columns go by
-- name.

-- name: insert_covered_row
INSERT INTO covered_rows (run, transaction_id) VALUES (:run, :transaction_id);

-- name: end_resolved
-- From the state, the attempt and the owner that were read in this very transaction.
UPDATE runs
SET state = :state, settlement_id = coalesce(:settlement_id, settlement_id), settlement_currency = :settlement_currency,
    attempt = :attempt, covers = :covers, attention = :attention, error_code = :error_code,
    error_detail = :error_detail, changed_at_ms = :now_ms, owner = NULL, retry_at_ms = NULL, tries = 0,
    needs_person = 0
WHERE id = :number AND state = :state_before AND attempt = :attempt_before AND owner IS :owner;

-- name: insert_taken
-- The processor's settlement as a further attempt: of the same pull, with its bytes as they were received.
INSERT INTO attempts (run, number, pull, idempotency_key, body, body_sha256, settlement, rates_body, scales,
                      evidence_sha256, program, frozen_at_ms, ended_at_ms, outcome, detail, settlement_id, status, taken)
SELECT run, number + 1, pull, '', :body, :body_sha256, :settlement, NULL, scales, evidence_sha256, :program, :now_ms,
       :now_ms, 'posted', :detail, :settlement_id, :status, :taken
FROM attempts WHERE run = :run AND number = :number;

-- name: end_attention
UPDATE runs SET attention = NULL, changed_at_ms = :now_ms WHERE id = :number AND attention IS NOT NULL;

-- name: late_rows_taken
SELECT transaction_id, period FROM late_rows WHERE run = :run;

-- name: corrections_taken
SELECT DISTINCT transaction_id FROM differences WHERE taken_by_run = :run;

-- name: passed_over_for
-- Rows that other runs passed over on their own day because this one held them.
SELECT moved_rows.transaction_id, moved_rows.period, moved_rows.run FROM moved_rows WHERE held_by_run = :run
ORDER BY moved_rows.run, moved_rows.transaction_id;

-- name: free_late_rows
-- All but those that are covered.
DELETE FROM late_rows WHERE run = :run AND transaction_id NOT IN (SELECT value FROM json_each(:covered));

-- name: free_owed
UPDATE outstanding SET taken_by_run = NULL
WHERE taken_by_run = :run AND transaction_id NOT IN (SELECT value FROM json_each(:covered));

-- name: free_corrections
UPDATE differences SET taken_by_run = NULL
WHERE taken_by_run = :run AND transaction_id NOT IN (SELECT value FROM json_each(:covered));

-- name: free_differences
-- What it does not hold is not compared with what it read any more.
UPDATE differences
SET decision = 'superseded', reason = 'the settlement that was taken does not hold the row', decided_by = NULL,
    decided_at_ms = :now_ms
WHERE held_by_run = :run AND taken_by_run IS NULL AND (decision IS NULL OR decision = 'settle')
    AND transaction_id NOT IN (SELECT value FROM json_each(:covered));

-- name: forget_listings_since
-- Listings by runs that were frozen since: where a row stood that this run held then, they passed it over.
DELETE FROM day_listings
WHERE account = :account AND run <> :run AND run IN (SELECT run FROM attempts WHERE frozen_at_ms >= :since_ms);

-- name: first_frozen
SELECT min(frozen_at_ms) AS at_ms FROM attempts WHERE run = :run;

-- name: attempts_sent
SELECT count(*) AS attempts FROM attempts WHERE run = :run AND sent_at_ms IS NOT NULL;

-- name: run_beside
SELECT 1 AS found FROM runs WHERE account = :account AND date = :date;

-- name: forget_edge
DELETE FROM day_edges WHERE account = :account AND date = :date;

-- name: give_back_owed
UPDATE outstanding SET taken_by_run = NULL WHERE taken_by_run = :run;

-- name: forget_available
UPDATE outstanding SET available_run = NULL WHERE available_run = :run;

-- name: forget_own_owed
DELETE FROM outstanding WHERE account = :account AND period = :period AND seen_by_run = :run;

-- name: pass_on_owed
-- What it found on earlier days stays owed, as seen by the run of that day.
UPDATE outstanding
SET seen_by_run = (SELECT id FROM runs WHERE account = outstanding.account AND date = outstanding.period)
WHERE seen_by_run = :run;

-- name: give_back_corrections
UPDATE differences SET taken_by_run = NULL WHERE taken_by_run = :run;

-- name: forget_held_differences
DELETE FROM differences WHERE held_by_run = :run;

-- name: forget_who_saw
UPDATE differences SET seen_by_run = NULL WHERE seen_by_run = :run;

-- name: forget_late_rows
DELETE FROM late_rows WHERE run = :run;

-- name: forget_moved_rows
DELETE FROM moved_rows WHERE run = :run;

-- name: forget_listings
DELETE FROM day_listings WHERE account = :account AND run = :run;

-- name: forget_settled_ids
DELETE FROM settled_ids WHERE account = :account_number AND run = :run;

-- name: forget_row_answers
DELETE FROM row_answers WHERE run = :run;

-- name: forget_pages
DELETE FROM pages WHERE run = :run;

-- name: forget_windows
DELETE FROM windows WHERE run = :run;

-- name: forget_readings
DELETE FROM readings WHERE run = :run;

-- name: forget_covered_rows
DELETE FROM covered_rows WHERE run = :run;

-- name: forget_resolutions
DELETE FROM resolutions WHERE run = :run;

-- name: forget_attempts
DELETE FROM attempts WHERE run = :run;

-- name: forget_run
DELETE FROM runs WHERE id = :run AND owner IS :owner AND state = :state;

-- name: keep_number
INSERT INTO forgotten_runs (number) VALUES (:run);
