-- The queries of runs. Each begins with a line `-- name: NAME`.

-- name: run_by_day
SELECT * FROM runs WHERE account = ? AND date = ?;

-- name: run_by_id
SELECT * FROM runs WHERE id = ?;

-- name: run_by_settlement
SELECT * FROM runs WHERE settlement_id = ? ORDER BY id DESC;

-- name: insert_run
INSERT INTO runs (account, date, tenant, state, settlement_currency, zone, window_start_s, window_end_s, attempt, pull,
                  pull_started_at_ms, owner, requested_by, created_at_ms, changed_at_ms)
VALUES (?, ?, ?, 'pulling', ?, ?, ?, ?, 1, 1, ?, ?, ?, ?, ?);

-- name: overlapping_run
-- A run of the account whose window shares an instant with this one.
SELECT * FROM runs WHERE account = ? AND date <> ? AND window_start_s < ? AND window_end_s > ? ORDER BY date LIMIT 1;

-- name: claim_run
-- Takes a run over, from the state and owner that were read in this very transaction.
UPDATE runs
SET owner = ?1, state = ?2, settlement_currency = ?3, tenant = ?4, zone = ?5, window_start_s = ?6, window_end_s = ?7,
    attempt = ?8, pull = ?9, pull_started_at_ms = ?10, requested_by = ?11, changed_at_ms = ?12,
    error_code = NULL, error_detail = NULL
WHERE id = ?13;

-- name: move_run
-- Every change of state is conditional on the owner and the state that the caller believes in.
UPDATE runs
SET state = ?1, settlement_id = coalesce(?2, settlement_id), error_code = ?3, error_detail = ?4, changed_at_ms = ?5,
    owner = CASE WHEN ?6 THEN NULL ELSE owner END
WHERE id = ?7 AND owner = ?8 AND state = ?9;

-- name: release_run
UPDATE runs SET owner = NULL WHERE id = ? AND owner = ?;

-- name: resolve_run
UPDATE runs SET state = ?, settlement_id = coalesce(?, settlement_id), error_code = ?, error_detail = ?,
    changed_at_ms = ?, owner = NULL
WHERE id = ? AND state = 'unknown' AND owner IS ?;

-- name: next_attempt
UPDATE runs SET attempt = ?, changed_at_ms = ? WHERE id = ? AND owner IS ? AND attempt = ?;

-- name: unfinished_runs
SELECT * FROM runs WHERE state IN ('pulling', 'frozen', 'unknown') ORDER BY date, account;

-- name: posted_days
-- The posted days of an account in a span of dates, oldest first.
SELECT * FROM runs WHERE account = ? AND state = 'posted' AND date >= ? AND date < ? ORDER BY date;

-- name: oldest_outstanding
-- A row that a rejected run holds is owed all the same: that run has not settled it.
SELECT min(outstanding.period)
FROM outstanding
LEFT JOIN late_rows USING (account, transaction_id)
LEFT JOIN runs AS holder ON holder.id = late_rows.run AND holder.state <> 'rejected'
WHERE outstanding.account = ? AND outstanding.period < ? AND holder.id IS NULL
    AND outstanding.written_off_ms IS NULL;

-- name: oldest_page
-- Of all its pulls: a rejected attempt may have been the only one to know what an earlier day still owes.
SELECT min(period) FROM pages WHERE run = ?;

-- name: insert_attempt
INSERT INTO attempts (run, number, pull, idempotency_key, body, body_sha256, settlement, rates_body, scales,
                      evidence_sha256, program, frozen_at_ms)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: copy_attempt
-- The same settlement under the next key: the processor forgot the last one, or never took it.
INSERT INTO attempts (run, number, pull, idempotency_key, body, body_sha256, settlement, rates_body, scales,
                      evidence_sha256, program, frozen_at_ms)
SELECT run, number + 1, pull, ?1, body, body_sha256, settlement, rates_body, scales, evidence_sha256, program, ?2
FROM attempts WHERE run = ?3 AND number = ?4;

-- name: attempt
SELECT * FROM attempts WHERE run = ? AND number = ?;

-- name: attempts
SELECT * FROM attempts WHERE run = ? ORDER BY number;

-- name: mark_sent
-- The time of the first send that may have been taken: one that certainly failed counts no more.
UPDATE attempts
SET sent_at_ms = CASE WHEN outcome = 'failed' THEN ?1 ELSE coalesce(sent_at_ms, ?1) END,
    outcome = NULL, detail = NULL, ended_at_ms = NULL
WHERE run = ?2 AND number = ?3;

-- name: end_attempt
UPDATE attempts
SET outcome = ?, detail = ?, settlement_id = coalesce(?, settlement_id), status = coalesce(?, status), ended_at_ms = ?
WHERE run = ? AND number = ?;

-- name: insert_page
INSERT INTO pages (run, pull, period, number, window, cursor, last_id, row_count, has_more, window_start_s, window_end_s,
                   body, body_sha256, chain_sha256, received_at_ms)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: last_chain
SELECT chain_sha256 FROM pages WHERE run = ? AND pull = ? AND period = ? AND number = ?;

-- name: forget_windows
DELETE FROM windows WHERE run = ? AND pull = ? AND period = ?;

-- name: insert_window
INSERT INTO windows (run, pull, period, number, start_s, end_s, serial_reason) VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: windows
SELECT period, number, start_s, end_s, serial_reason FROM windows WHERE run = ? AND pull = ?
ORDER BY period, start_s;

-- name: pages
-- The pages of one period in the order they came.
SELECT * FROM pages WHERE run = ? AND pull = ? AND period = ? AND number > ? ORDER BY number LIMIT ?;

-- name: page_digests
SELECT period, number, row_count, body_sha256, chain_sha256, received_at_ms, has_more, body IS NOT NULL, window
FROM pages WHERE run = ? AND pull = ? ORDER BY period, number;

-- name: insert_outstanding
INSERT INTO outstanding (account, transaction_id, period, type, currency, amount, fee, seen_by_run, seen_at_ms)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (account, transaction_id) DO NOTHING;

-- name: forget_outstanding
-- A rejected attempt is pulled again: what it had registered of its own day comes from its next pull. Earlier days go on
-- owing what it found there.
DELETE FROM outstanding WHERE seen_by_run = ?1 AND period = (SELECT date FROM runs WHERE id = ?1) AND written_off_ms IS NULL;

-- name: insert_late_row
INSERT INTO late_rows (account, transaction_id, period, run) VALUES (?, ?, ?, ?);

-- name: late_rows_of_day
-- The rows of a day that runs have taken in since, and the pull in which each of those runs read them.
SELECT late_rows.transaction_id, runs.id, runs.pull FROM late_rows JOIN runs ON runs.id = late_rows.run
WHERE late_rows.account = ? AND late_rows.period = ? ORDER BY runs.id;

-- name: written_off_ids
SELECT transaction_id FROM outstanding WHERE account = ? AND period = ? AND written_off_ms IS NOT NULL;

-- name: taken_late_rows
-- Which of these rows another run has, or a person wrote off, since they were read.
SELECT wanted.value FROM json_each(?2) AS wanted JOIN late_rows ON late_rows.account = ?1
    AND late_rows.transaction_id = wanted.value
UNION ALL
SELECT wanted.value FROM json_each(?2) AS wanted JOIN outstanding ON outstanding.account = ?1
    AND outstanding.transaction_id = wanted.value AND outstanding.written_off_ms IS NOT NULL;

-- name: forget_late_rows
DELETE FROM late_rows WHERE run = ?;

-- name: insert_resolution
INSERT INTO resolutions (run, attempt, decision, settlement_id, reason, decided_by, decided_at_ms)
VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: resolutions
SELECT attempt, decision, settlement_id, reason, decided_by, decided_at_ms FROM resolutions WHERE run = ?
ORDER BY attempt;

-- name: list_runs
-- Runs before a cursor (date, number), newest day first; empty filters match all.
SELECT * FROM runs
WHERE (?1 = '' OR account = ?1) AND (?2 = '' OR date >= ?2) AND (?3 = '' OR date <= ?3)
    AND (date, id) < (?4, ?5)
ORDER BY date DESC, id DESC LIMIT ?6;

-- name: journal_of
SELECT id, tenant, key, event_at_ms, recorded_at_ms FROM journals
WHERE tenant = ? AND operation = 'settlement' AND key = ?;

-- name: entries_of
SELECT account, currency, amount, balance_before, balance_after, details FROM entries WHERE journal = ?
ORDER BY position;

-- name: outstanding_rows
-- What is owed as of the end of a day (also as unix milliseconds): registered for a day up to it, not taken in by a run
-- of a day up to it (a rejected one has settled nothing), nor written off by then.
SELECT outstanding.account, outstanding.transaction_id, outstanding.period, outstanding.type, outstanding.currency,
       outstanding.amount, outstanding.fee
FROM outstanding
LEFT JOIN late_rows USING (account, transaction_id)
LEFT JOIN runs AS taken ON taken.id = late_rows.run AND taken.date <= ?2 AND taken.state <> 'rejected'
WHERE (?1 = '' OR outstanding.account = ?1) AND outstanding.period <= ?2 AND taken.id IS NULL
    AND (outstanding.written_off_ms IS NULL OR outstanding.written_off_ms >= ?3)
ORDER BY outstanding.currency, outstanding.period, outstanding.account, outstanding.transaction_id;

-- name: write_off
-- Of a posted day only: one that is pulled anew (a rejected one, tried again) settles its rows as they are then.
UPDATE outstanding SET written_off_ms = ?1, written_off_by = ?2, reason = ?3
WHERE account = ?4 AND transaction_id = ?5 AND written_off_ms IS NULL
    AND NOT EXISTS (SELECT 1 FROM late_rows JOIN runs ON runs.id = late_rows.run AND runs.state <> 'rejected'
                    WHERE late_rows.account = ?4 AND late_rows.transaction_id = ?5)
    AND EXISTS (SELECT 1 FROM runs WHERE runs.account = ?4 AND runs.date = outstanding.period AND runs.state = 'posted');

-- name: late_rows_of
SELECT period, transaction_id FROM late_rows WHERE run = ? ORDER BY period, transaction_id;

-- name: prunable_pages
-- Pages with a body of posted runs of days before a date, but for days that still owe a row.
SELECT pages.run, pages.pull, pages.period, pages.number FROM pages
JOIN runs ON runs.id = pages.run
WHERE runs.state = 'posted' AND runs.date < ?1 AND pages.body IS NOT NULL
    AND NOT EXISTS (
        SELECT 1 FROM outstanding
        LEFT JOIN late_rows USING (account, transaction_id)
        LEFT JOIN runs AS holder ON holder.id = late_rows.run AND holder.state <> 'rejected'
        WHERE outstanding.account = runs.account AND outstanding.period <= runs.date AND holder.id IS NULL
            AND outstanding.written_off_ms IS NULL)
ORDER BY pages.run LIMIT ?2;

-- name: prune_page
UPDATE pages SET body = NULL, available_ids = ? WHERE run = ? AND pull = ? AND period = ? AND number = ?;
