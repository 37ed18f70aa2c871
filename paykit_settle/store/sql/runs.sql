-- The queries of runs. Each begins with a line `-- name: NAME`; parameters and columns go by name.

-- part: run_columns
runs.id AS number, runs.account, runs.date, runs.tenant, runs.state, runs.settlement_currency, runs.zone,
    runs.window_start_s, runs.window_end_s, runs.attempt, runs.pull, runs.pull_started_at_ms, runs.owner,
    runs.requested_by, runs.settlement_id, runs.error_code, runs.error_detail, runs.created_at_ms, runs.changed_at_ms,
    runs.processor_url, runs.key_mode, runs.terms, runs.rates_given, runs.indexed_pull,
    runs.retry_at_ms, runs.tries, runs.needs_person, runs.attention, runs.covers, runs.principal

-- part: attempt_columns
number, pull, idempotency_key, body, body_sha256, settlement, rates_body, scales, evidence_sha256, program,
    frozen_at_ms, sent_at_ms, ended_at_ms, outcome, detail, settlement_id, status, key_spent_at_ms, first_empty_at_ms,
    refusal, taken

-- part: page_columns
period, number, window, cursor, last_id, row_count, has_more, window_start_s, window_end_s, asked_start_s, asked_end_s,
    is_needed, body, available_ids, body_sha256, chain_sha256, received_at_ms

-- name: run_by_day
SELECT {run_columns} FROM runs WHERE account = :account AND date = :date;

-- name: run_by_number
SELECT {run_columns} FROM runs WHERE id = :number;

-- name: run_by_settlement
SELECT {run_columns} FROM runs WHERE settlement_id = :settlement_id ORDER BY id DESC;

-- name: insert_run
-- Its number was never given before, also where the newest run was forgotten.
INSERT INTO runs (id, account, date, tenant, state, settlement_currency, zone, window_start_s, window_end_s, attempt,
                  pull, pull_started_at_ms, owner, requested_by, principal, created_at_ms, changed_at_ms, processor_url,
                  key_mode, terms, rates_given)
SELECT max(coalesce((SELECT max(id) FROM runs), 0), coalesce((SELECT max(number) FROM forgotten_runs), 0)) + 1,
       :account, :date, :tenant, 'pulling',
       :settlement_currency, :zone, :window_start_s, :window_end_s, 1, 1, :now_ms, :owner, :requested_by, :principal,
       :now_ms, :now_ms, :processor_url, :key_mode, :terms, :rates_given;

-- name: claim_run
-- Takes a run over, from the state and owner that were read in this very transaction. Should its new owner die, it is due
-- at once.
UPDATE runs
SET owner = :owner, state = :state, settlement_currency = :settlement_currency, tenant = :tenant, zone = :zone,
    window_start_s = :window_start_s, window_end_s = :window_end_s, attempt = :attempt, pull = :pull,
    pull_started_at_ms = :pull_started_at_ms, requested_by = :requested_by, principal = :principal,
    changed_at_ms = :now_ms,
    processor_url = :processor_url, key_mode = :key_mode, terms = :terms, rates_given = :rates_given,
    error_code = NULL, error_detail = NULL, retry_at_ms = NULL, needs_person = 0
WHERE id = :number;

-- name: move_run
-- Every change of state is conditional on the owner and the state that the caller believes in.
UPDATE runs
SET state = :state, settlement_id = coalesce(:settlement_id, settlement_id), error_code = :error_code,
    error_detail = :error_detail, changed_at_ms = :now_ms, owner = CASE WHEN :release THEN NULL ELSE owner END,
    retry_at_ms = :retry_at_ms, tries = :tries, needs_person = :needs_person
WHERE id = :number AND owner = :owner AND state = :state_before;

-- name: next_attempt
UPDATE runs SET attempt = :attempt + 1, changed_at_ms = :now_ms
WHERE id = :number AND owner IS :owner AND attempt = :attempt;

-- name: unfinished_runs
SELECT {run_columns} FROM runs WHERE state IN ('pulling', 'frozen', 'unknown') ORDER BY date, account;

-- name: next_retry
-- When the next run is due that waits by itself.
SELECT min(retry_at_ms) AS at_ms FROM runs
WHERE state IN ('pulling', 'frozen', 'unknown') AND owner IS NULL AND NOT needs_person AND retry_at_ms > :now_ms;

-- name: balance_of
SELECT balance FROM accounts WHERE tenant = :tenant AND id = :account AND currency = :currency;

-- name: unbooked_totals
-- What is frozen for a tenant and a currency, and neither booked nor given up.
SELECT json_extract(attempts.settlement, '$.total_net') AS total_net FROM runs
JOIN attempts ON attempts.run = runs.id AND attempts.number = runs.attempt
WHERE runs.state IN ('frozen', 'unknown') AND runs.tenant = :tenant AND runs.settlement_currency = :currency
    AND runs.id <> :run;

-- name: posted_days
-- The posted days of an account in a span of dates, oldest first.
SELECT {run_columns} FROM runs
WHERE account = :account AND state = 'posted' AND date >= :first AND date < :before ORDER BY date;

-- name: insert_attempt
INSERT INTO attempts (run, number, pull, idempotency_key, body, body_sha256, settlement, rates_body, scales,
                      evidence_sha256, program, frozen_at_ms)
VALUES (:run, :number, :pull, :idempotency_key, :body, :body_sha256, :settlement, :rates_body, :scales,
        :evidence_sha256, :program, :now_ms);

-- name: copy_attempt
-- The same settlement under the next key: the processor forgot the last one, or never took it.
INSERT INTO attempts (run, number, pull, idempotency_key, body, body_sha256, settlement, rates_body, scales,
                      evidence_sha256, program, frozen_at_ms)
SELECT run, number + 1, pull, :idempotency_key, body, body_sha256, settlement, rates_body, scales, evidence_sha256,
       program, :now_ms
FROM attempts WHERE run = :run AND number = :number;

-- name: attempt
SELECT {attempt_columns} FROM attempts WHERE run = :run AND number = :number;

-- name: attempts
SELECT {attempt_columns} FROM attempts WHERE run = :run ORDER BY number;

-- name: mark_sent
-- The time of the first send that may have been taken: one that certainly failed counts no more.
UPDATE attempts
SET sent_at_ms = CASE WHEN outcome = 'failed' THEN :now_ms ELSE coalesce(sent_at_ms, :now_ms) END,
    outcome = NULL, detail = NULL, ended_at_ms = NULL, first_empty_at_ms = NULL
WHERE run = :run AND number = :number;

-- name: spend_key
-- From now on it is only looked up under its key; `first_empty_at_ms`: since when nothing was found (NULL: not known).
UPDATE attempts
SET key_spent_at_ms = coalesce(key_spent_at_ms, :now_ms), first_empty_at_ms = :first_empty_at_ms,
    refusal = coalesce(:refusal, refusal)
WHERE run = :run AND number = :number;

-- name: set_attention
UPDATE runs SET attention = :attention WHERE id = :number;

-- name: end_attempt
UPDATE attempts
SET outcome = :outcome, detail = :detail, settlement_id = coalesce(:settlement_id, settlement_id),
    status = coalesce(:status, status), ended_at_ms = :now_ms
WHERE run = :run AND number = :number;

-- name: insert_page
INSERT INTO pages (run, pull, period, number, window, cursor, last_id, row_count, has_more, window_start_s, window_end_s,
                   asked_start_s, asked_end_s, is_needed, body, body_sha256, chain_sha256, received_at_ms)
VALUES (:run, :pull, :period, :number, :window, :cursor, :last_id, :row_count, :has_more, :window_start_s,
        :window_end_s, :asked_start_s, :asked_end_s, :is_needed, :body, :body_sha256, :chain_sha256, :received_at_ms);

-- name: page_count
SELECT coalesce(max(number), 0) AS number FROM pages WHERE run = :run AND pull = :pull AND period = :period;

-- name: reading
SELECT first_page, began_at_ms, outcome, reason FROM readings WHERE run = :run AND pull = :pull AND period = :period;

-- name: put_reading
INSERT INTO readings (run, pull, period, first_page, began_at_ms, outcome, reason)
VALUES (:run, :pull, :period, :first_page, :began_at_ms, :outcome, :reason)
ON CONFLICT (run, pull, period) DO UPDATE
SET first_page = :first_page, began_at_ms = :began_at_ms, outcome = :outcome, reason = :reason;

-- name: last_chain
SELECT chain_sha256 FROM pages WHERE run = :run AND pull = :pull AND period = :period AND number = :number;

-- name: forget_windows
DELETE FROM windows WHERE run = :run AND pull = :pull AND period = :period;

-- name: insert_window
INSERT INTO windows (run, pull, period, number, start_s, end_s, serial_reason)
VALUES (:run, :pull, :period, :number, :start_s, :end_s, :serial_reason);

-- name: windows
SELECT period, number, start_s, end_s, serial_reason FROM windows WHERE run = :run AND pull = :pull
ORDER BY period, start_s;

-- name: pages
-- The pages of one period in the order they came.
SELECT {page_columns} FROM pages WHERE run = :run AND pull = :pull AND period = :period AND number > :after
ORDER BY number LIMIT :limit;

-- name: page_digests
-- `is_counted`: it does not belong to a reading that was given up.
SELECT pages.period, pages.number, pages.row_count, pages.body_sha256, pages.chain_sha256, pages.received_at_ms,
       pages.has_more, pages.body IS NOT NULL AS is_kept, pages.window, pages.is_needed,
       coalesce(pages.number >= readings.first_page AND readings.outcome IS NOT 'given up', 1) AS is_counted
FROM pages LEFT JOIN readings USING (run, pull, period)
WHERE pages.run = :run AND pages.pull = :pull ORDER BY pages.period, pages.number;

-- name: row_answer_digests
SELECT transaction_id, body_sha256 FROM row_answers WHERE run = :run AND pull = :pull ORDER BY transaction_id;

-- name: insert_outstanding
INSERT INTO outstanding (account, transaction_id, period, type, currency, amount, fee, available_on_s, seen_by_run,
                         seen_at_ms)
VALUES (:account, :transaction_id, :period, :type, :currency, :amount, :fee, :available_on_s, :run, :now_ms)
ON CONFLICT (account, transaction_id) DO NOTHING;

-- name: forget_outstanding
-- A rejected attempt is pulled again: what it had registered of its own day comes from its next pull. Earlier days go on
-- owing what it found there.
DELETE FROM outstanding
WHERE seen_by_run = :run AND period = (SELECT date FROM runs WHERE id = :run) AND written_off_ms IS NULL;

-- name: insert_late_row
INSERT INTO late_rows (account, transaction_id, period, run) VALUES (:account, :transaction_id, :period, :run);

-- name: late_rows_of_day
-- The rows of a day that runs have taken in since, and the pull in which each of those runs read them.
SELECT late_rows.transaction_id, runs.id AS run, runs.pull FROM late_rows JOIN runs ON runs.id = late_rows.run
WHERE late_rows.account = :account AND late_rows.period = :period ORDER BY runs.id;

-- name: taken_late_rows
-- Which of these rows another run has, or a person wrote off, since they were read.
SELECT transaction_id FROM late_rows WHERE account = :account AND transaction_id IN (SELECT value FROM json_each(:ids))
UNION ALL
SELECT transaction_id FROM outstanding
WHERE account = :account AND transaction_id IN (SELECT value FROM json_each(:ids)) AND written_off_ms IS NOT NULL;

-- name: forget_late_rows
DELETE FROM late_rows WHERE run = :run;

-- name: forget_corrections
-- What a run that is pulled anew had settled of the register of differences is to be settled again.
UPDATE differences SET taken_by_run = NULL WHERE taken_by_run = :run;

-- name: forget_differences
-- It holds its rows no more, and reads them as they are now.
UPDATE differences
SET decision = 'superseded', reason = 'the run that held the row is pulled anew', decided_by = NULL,
    decided_at_ms = :now_ms
WHERE held_by_run = :run AND taken_by_run IS NULL AND (decision IS NULL OR decision = 'settle');

-- name: insert_resolution
INSERT INTO resolutions (run, attempt, decision, settlement_id, reason, decided_by, decided_at_ms)
VALUES (:run, :attempt, :decision, :settlement_id, :reason, :decided_by, :now_ms);

-- name: resolutions
SELECT attempt, decision, settlement_id, reason, decided_by, decided_at_ms FROM resolutions WHERE run = :run
ORDER BY attempt;

-- name: list_runs
-- Runs before a cursor (date, number), newest day first; empty filters match all.
SELECT {run_columns} FROM runs
WHERE (:account = '' OR account = :account) AND (:first = '' OR date >= :first) AND (:last = '' OR date <= :last)
    AND (date, id) < (:before_date, :before_number)
ORDER BY date DESC, id DESC LIMIT :limit;

-- name: runs_with_attention
SELECT {run_columns} FROM runs
WHERE attention IS NOT NULL
    AND (:account = '' OR account = :account) AND (:first = '' OR date >= :first) AND (:last = '' OR date <= :last)
ORDER BY date DESC, id DESC;

-- name: journal_of
SELECT id, recorded_at_ms FROM journals WHERE tenant = :tenant AND operation = 'settlement' AND key = :key;

-- name: entries_of
SELECT account, currency, amount, balance_before, balance_after, details FROM entries WHERE journal = :journal
ORDER BY position;

-- name: outstanding_rows
-- What is owed as of the end of a day (also as unix milliseconds): registered for a day up to it, not taken in by a run
-- of a day up to it (a rejected one has settled nothing), nor written off by then. A row that was registered by its
-- write-off was never owed.
SELECT outstanding.account, outstanding.transaction_id, outstanding.period, outstanding.type, outstanding.currency,
       outstanding.amount, outstanding.fee
FROM outstanding
LEFT JOIN runs AS taken ON taken.id = outstanding.taken_by_run AND taken.date <= :as_of AND taken.state <> 'rejected'
WHERE (:account = '' OR outstanding.account = :account) AND outstanding.period <= :as_of AND taken.id IS NULL
    AND (outstanding.written_off_ms IS NULL
         OR (outstanding.written_off_ms >= :end_ms AND outstanding.written_off_ms <> outstanding.seen_at_ms))
ORDER BY outstanding.currency, outstanding.period, outstanding.account, outstanding.transaction_id;

-- name: late_rows_of
SELECT period, transaction_id FROM late_rows WHERE run = :run ORDER BY period, transaction_id;

-- name: prunable_pages
-- Pages with a body of posted runs of days before a date, but for days that owe a row or are still to be listed again.
SELECT pages.run, pages.pull, pages.period, pages.number FROM pages
JOIN runs ON runs.id = pages.run
WHERE runs.state = 'posted' AND runs.date < :before AND pages.body IS NOT NULL
    AND NOT EXISTS (
        SELECT 1 FROM outstanding
        LEFT JOIN runs AS holder ON holder.id = outstanding.taken_by_run AND holder.state <> 'rejected'
        WHERE outstanding.account = runs.account AND outstanding.period <= runs.date AND holder.id IS NULL
            AND outstanding.written_off_ms IS NULL)
    AND NOT EXISTS (
        SELECT 1 FROM runs AS day
        WHERE day.account = runs.account AND day.date = pages.period AND day.state = 'posted'
            AND ((SELECT count(*) FROM day_listings WHERE account = day.account AND period = day.date) < :listings
                OR max(day.pull_started_at_ms, coalesce(
                    (SELECT max(began_at_ms) FROM day_listings WHERE account = day.account AND period = day.date), 0))
                    < day.window_end_s * 1000 + :age_ms))
ORDER BY pages.run LIMIT :limit;

-- name: prune_page
UPDATE pages SET body = NULL, available_ids = :available_ids
WHERE run = :run AND pull = :pull AND period = :period AND number = :number;
