-- The queries of write-offs. Each begins with a line `-- name: NAME`; parameters and columns go by name.

-- name: registered_row
-- A row that is owed or was, with the run that has taken it, for whichever day.
SELECT outstanding.period, outstanding.written_off_by, taken.id AS taken_by, taken.state AS taken_state,
       day.state AS day_state
FROM outstanding
LEFT JOIN late_rows USING (account, transaction_id)
LEFT JOIN runs AS taken ON taken.id = coalesce(late_rows.run, outstanding.taken_by_run)
LEFT JOIN runs AS day ON day.account = outstanding.account AND day.date = outstanding.period
WHERE outstanding.account = :account AND outstanding.transaction_id = :transaction_id;

-- name: holder_of_row
-- The run that took a row in late, or that held it when another day's run passed it over.
SELECT runs.id AS number FROM late_rows JOIN runs ON runs.id = late_rows.run
WHERE late_rows.account = :account AND late_rows.transaction_id = :transaction_id AND runs.state <> 'rejected'
UNION ALL
SELECT holder.id FROM moved_rows
JOIN runs ON runs.id = moved_rows.run
JOIN runs AS holder ON holder.id = moved_rows.held_by_run
WHERE runs.account = :account AND moved_rows.transaction_id = :transaction_id
    AND (holder.covers IS NULL OR holder.covers = 'all' OR EXISTS (
        SELECT 1 FROM covered_rows WHERE run = holder.id AND transaction_id = moved_rows.transaction_id))
LIMIT 1;

-- name: posted_days_newest_first
SELECT runs.id AS number, runs.date FROM runs
WHERE runs.account = :account AND runs.state = 'posted' AND (:day = '' OR runs.date = :day) ORDER BY runs.date DESC;

-- name: readings_of_day
-- The pulls that read a day whole or in part and were frozen, the latest run first, the day's own last.
SELECT DISTINCT runs.id AS run, runs.pull, pages.period,
    coalesce((SELECT first_page FROM readings WHERE readings.run = runs.id AND readings.pull = runs.pull
              AND readings.period = pages.period), 1) AS first_page
FROM pages
JOIN runs ON runs.id = pages.run AND runs.pull = pages.pull
JOIN attempts ON attempts.run = runs.id AND attempts.number = runs.attempt
WHERE runs.account = :account AND pages.period = :period
ORDER BY runs.date DESC;

-- name: write_off
UPDATE outstanding SET written_off_ms = :now_ms, written_off_by = :by, reason = :reason
WHERE account = :account AND transaction_id = :transaction_id;

-- name: insert_write_off
-- A row that was never registered as owed: it is registered by its write-off, at the same instant.
INSERT INTO outstanding (account, transaction_id, period, type, currency, amount, fee, seen_by_run, seen_at_ms,
                         written_off_ms, written_off_by, reason)
VALUES (:account, :transaction_id, :period, :type, :currency, :amount, :fee, :run, :now_ms, :now_ms, :by, :reason);

-- name: written_off_rows
-- Newest first; what became of a row: the run that saw it available later.
SELECT outstanding.account, outstanding.transaction_id, outstanding.period, outstanding.type, outstanding.currency,
       outstanding.amount, outstanding.fee, outstanding.written_off_ms, outstanding.written_off_by, outstanding.reason,
       outstanding.available_run, runs.date AS available_date
FROM outstanding LEFT JOIN runs ON runs.id = outstanding.available_run
WHERE (:account = '' OR outstanding.account = :account) AND outstanding.written_off_ms IS NOT NULL
ORDER BY outstanding.written_off_ms DESC, outstanding.account, outstanding.transaction_id;
