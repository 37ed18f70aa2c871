-- What gives every state of a run a way out: keys that are spent, absences that are not believed at once, runs that are
-- tried again by themselves or wait for a person, settlements that were taken from the processor, and who did what.

-- `retry_at_ms`: a run that is unfinished and nobody's is tried again from then on (NULL: at once), for the `tries` + 1st
-- time. `needs_person`: only a person can go on. `attention`: what somebody should look at although the run is posted.
-- `covers`: which rows of its evidence a settlement that is not ours holds; NULL for one that is. `principal`: who asked.
ALTER TABLE runs ADD COLUMN retry_at_ms INTEGER;
ALTER TABLE runs ADD COLUMN tries INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN needs_person INTEGER NOT NULL DEFAULT 0
    CONSTRAINT runs_needs_person CHECK (needs_person IN (0, 1));
ALTER TABLE runs ADD COLUMN attention TEXT;
ALTER TABLE runs ADD COLUMN covers TEXT CONSTRAINT runs_covers CHECK (covers IN ('all', 'none', 'listed'));
ALTER TABLE runs ADD COLUMN principal TEXT;

-- `key_spent_at_ms`: from then on it is never sent under its key again, only looked up. `first_empty_at_ms`: the first
-- complete look-up after that which found nothing. `refusal`: why the processor refused its content.
-- `taken`: NULL for what we froze; else the processor's own settlement, its bytes as received, and how much it says.
ALTER TABLE attempts ADD COLUMN key_spent_at_ms INTEGER;
ALTER TABLE attempts ADD COLUMN first_empty_at_ms INTEGER;
ALTER TABLE attempts ADD COLUMN refusal TEXT;
ALTER TABLE attempts ADD COLUMN taken TEXT CONSTRAINT attempts_taken CHECK (taken IN ('itemised', 'total only'));

-- The rows of its own day that a run holds whose settlement is not ours, where a person listed them. (Those of earlier
-- days are late rows.)
CREATE TABLE covered_rows (
    run            INTEGER NOT NULL CONSTRAINT covered_rows_run REFERENCES runs (id),
    transaction_id TEXT    NOT NULL,
    CONSTRAINT covered_rows_key PRIMARY KEY (run, transaction_id)
) STRICT, WITHOUT ROWID;

-- A processor that has answered a look-up of settlements: when it did so last.
CREATE TABLE processors (
    url              TEXT    NOT NULL,
    key_mode         TEXT    NOT NULL,
    listed_at_ms     INTEGER NOT NULL,
    CONSTRAINT processors_key PRIMARY KEY (url, key_mode)
) STRICT;

-- The numbers of runs that were forgotten: they are never given again.
CREATE TABLE forgotten_runs (
    number INTEGER PRIMARY KEY
) STRICT;

-- What happened to runs and what people did, in the same commit as the thing itself. Nothing here is ever changed.
CREATE TABLE changes (
    number    INTEGER PRIMARY KEY,
    at_ms     INTEGER NOT NULL,
    channel   TEXT    NOT NULL,
    principal TEXT    NOT NULL,
    account   TEXT    NOT NULL,
    what      TEXT    NOT NULL,
    subject   TEXT    NOT NULL,
    detail    TEXT    NOT NULL
) STRICT;

CREATE INDEX changes_account ON changes (account);

CREATE TRIGGER changes_stay BEFORE UPDATE ON changes
BEGIN SELECT raise(ABORT, 'changes are never changed'); END;

CREATE TRIGGER changes_are_kept BEFORE DELETE ON changes
BEGIN SELECT raise(ABORT, 'changes are never deleted'); END;
