-- Settled or owed rows that were last seen under another day than the one they are settled or owed under: the list of
-- that other day is to show them. `held_by_run`: the run that held the row then; NULL for one that is owed.
CREATE TABLE rows_elsewhere (
    account        TEXT    NOT NULL,
    transaction_id TEXT    NOT NULL,
    period         TEXT    NOT NULL,
    held_by_run    INTEGER CONSTRAINT rows_elsewhere_held_by_run REFERENCES runs (id),
    CONSTRAINT rows_elsewhere_key PRIMARY KEY (account, transaction_id)
) STRICT;
CREATE INDEX rows_elsewhere_period_index ON rows_elsewhere (account, period);

-- What older runs have passed over and somebody holds still; the newest day that showed it.
INSERT INTO rows_elsewhere (account, transaction_id, period, held_by_run)
SELECT runs.account, moved_rows.transaction_id, max(moved_rows.period), moved_rows.held_by_run
FROM moved_rows
JOIN runs ON runs.id = moved_rows.run
JOIN runs AS holder ON holder.id = moved_rows.held_by_run
GROUP BY runs.account, moved_rows.transaction_id;
