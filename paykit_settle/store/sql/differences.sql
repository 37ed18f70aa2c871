-- The queries of the register of differences. Each begins with a line `-- name: NAME`; parameters and columns go by name.

-- part: difference_columns
differences.account, differences.transaction_id, differences.revision, differences.kind, differences.period,
    differences.held_by_run, differences.was, differences.is_now, differences.detail, differences.seen_by_run,
    differences.seen_at_ms, differences.decision, differences.decided_by, differences.reason, differences.decided_at_ms,
    differences.taken_by_run, holder.state AS holder_state, taker.date AS taker_date, taker.state AS taker_state

-- part: differences_with_runs
differences
LEFT JOIN runs AS holder ON holder.id = differences.held_by_run
LEFT JOIN runs AS taker ON taker.id = differences.taken_by_run

-- part: is_live
-- Waits for a person, or for the run that settles it.
(differences.decision IS NULL OR (differences.decision = 'settle' AND differences.taken_by_run IS NULL))

-- name: differences_of_rows
-- All revisions of some rows, in order.
SELECT {difference_columns} FROM {differences_with_runs}
WHERE differences.account = :account AND differences.transaction_id IN (SELECT value FROM json_each(:ids))
ORDER BY differences.transaction_id, differences.revision;

-- name: list_differences
-- Newest first, after a cursor; without `with_ended` those that wait for somebody.
SELECT {difference_columns} FROM {differences_with_runs}
WHERE differences.account = :account AND (:with_ended OR {is_live})
    AND (differences.seen_at_ms, differences.transaction_id, differences.revision)
        < (:before_ms, :before_id, :before_revision)
ORDER BY differences.seen_at_ms DESC, differences.transaction_id DESC, differences.revision DESC
LIMIT :limit;

-- name: live_ids
SELECT DISTINCT transaction_id FROM differences
WHERE account = :account AND (:period = '' OR period = :period) AND {is_live};

-- name: insert_difference
INSERT INTO differences (account, transaction_id, revision, kind, period, held_by_run, was, is_now, detail, seen_by_run,
                         seen_at_ms, decision, decided_by, reason, decided_at_ms)
VALUES (:account, :transaction_id, :revision, :kind, :period, :held_by_run, :was, :is_now, :detail, :seen_by_run,
        :seen_at_ms, :decision, :decided_by, :reason, :decided_at_ms);

-- name: end_difference
-- Never one that a run has taken.
UPDATE differences
SET decision = :decision, decided_by = :decided_by, reason = :reason, decided_at_ms = :decided_at_ms
WHERE account = :account AND transaction_id = :transaction_id AND revision = :revision AND taken_by_run IS NULL;

-- name: written_off_row
SELECT 1 AS found FROM outstanding
WHERE account = :account AND transaction_id = :transaction_id AND written_off_ms IS NOT NULL;

-- name: corrections_for
-- Of rows whose run is posted only: any other may be pulled anew, and then reads the row as it is. So must be the runs
-- that took earlier corrections of the row: what came after counts on them.
SELECT differences.transaction_id, differences.revision, differences.period, differences.was, differences.is_now
FROM differences JOIN runs AS holder ON holder.id = differences.held_by_run AND holder.state = 'posted'
WHERE differences.account = :account AND differences.decision = 'settle' AND differences.taken_by_run IS NULL
    AND differences.period < :before
    AND NOT EXISTS (
        SELECT 1 FROM differences AS earlier JOIN runs AS taker ON taker.id = earlier.taken_by_run
        WHERE earlier.account = differences.account AND earlier.transaction_id = differences.transaction_id
            AND earlier.revision < differences.revision AND taker.state <> 'posted')
ORDER BY differences.period, differences.transaction_id, differences.revision;

-- name: take_correction
UPDATE differences SET taken_by_run = :run
WHERE account = :account AND transaction_id = :transaction_id AND revision = :revision AND decision = 'settle'
    AND taken_by_run IS NULL;

-- name: corrections_of
SELECT {difference_columns} FROM {differences_with_runs}
WHERE differences.taken_by_run = :run ORDER BY differences.period, differences.transaction_id, differences.revision;
