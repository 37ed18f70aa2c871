-- What keeps a row from being settled twice and a day from being settled in part: the terms of an account and of each
-- run, the edges between days, how each day was read, which rows are held, and what differs from what was settled.

-- One row: the key of the digests below, and when this file was put back from a back-up.
CREATE TABLE database_facts (
    number         INTEGER PRIMARY KEY CONSTRAINT database_facts_one CHECK (number = 1),
    digest_key     BLOB    NOT NULL CONSTRAINT database_facts_digest_key CHECK (length(digest_key) = 16),
    restored_at_ms INTEGER
) STRICT;
INSERT INTO database_facts (number, digest_key) VALUES (1, randomblob(16));

-- An account that is settled here. Its tenant never changes; zone and processor only when a person says so.
-- `processor_url` and `key_mode` are NULL until the first claim by a program that keeps them. `disagreement` names
-- what older runs of the account were settled with beside this.
CREATE TABLE settled_accounts (
    number        INTEGER PRIMARY KEY,
    account       TEXT    NOT NULL,
    tenant        TEXT    NOT NULL,
    zone          TEXT    NOT NULL,
    processor_url TEXT,
    key_mode      TEXT    CONSTRAINT settled_accounts_key_mode CHECK (key_mode IN ('test', 'live', 'unmarked')),
    disagreement  TEXT,
    CONSTRAINT settled_accounts_key UNIQUE (account)
) STRICT;

-- Of the newest posted run, else of the newest; what other runs have is named.
INSERT INTO settled_accounts (account, tenant, zone, disagreement)
SELECT newest.account, newest.tenant, newest.zone,
       nullif(
           (SELECT group_concat('tenant ' || tenant, ', ') FROM (
                SELECT DISTINCT tenant FROM runs WHERE account = newest.account AND tenant <> newest.tenant ORDER BY tenant))
           , '')
FROM runs AS newest
WHERE newest.id = (SELECT id FROM runs WHERE account = newest.account
                   ORDER BY (state = 'posted') DESC, date DESC LIMIT 1)
ORDER BY newest.account;

UPDATE settled_accounts
SET disagreement = (
    SELECT concat_ws(', ', settled_accounts.disagreement, group_concat('zone ' || zone, ', ')) FROM (
        SELECT DISTINCT zone FROM runs
        WHERE account = settled_accounts.account AND zone <> settled_accounts.zone ORDER BY zone))
WHERE EXISTS (SELECT 1 FROM runs WHERE account = settled_accounts.account AND zone <> settled_accounts.zone);

-- The terms that a claim keeps, for whoever goes on with it; NULL in runs of older files until they are claimed again.
-- `terms` is JSON (scales, rates base, age bounds, …), `rates_given` a rate table that was given instead of the
-- processor's, `indexed_pull` the pull whose rows are in `settled_ids`.
ALTER TABLE runs ADD COLUMN processor_url TEXT;
ALTER TABLE runs ADD COLUMN key_mode TEXT;
ALTER TABLE runs ADD COLUMN terms TEXT;
ALTER TABLE runs ADD COLUMN rates_given BLOB;
ALTER TABLE runs ADD COLUMN indexed_pull INTEGER;

-- The edge between two consecutive dates of an account: the instant at which `date` begins and the date before it ends.
CREATE TABLE day_edges (
    account TEXT    NOT NULL,
    date    TEXT    NOT NULL,
    start_s INTEGER NOT NULL,
    CONSTRAINT day_edges_key PRIMARY KEY (account, date)
) STRICT, WITHOUT ROWID;

-- Where older runs leave a gap, the later day's beginning is the edge: the gap's rows are taken in with that day.
INSERT INTO day_edges (account, date, start_s)
SELECT account, date, window_start_s FROM runs;
INSERT INTO day_edges (account, date, start_s)
SELECT account, date(date, '+1 day'), window_end_s FROM runs WHERE true
ON CONFLICT (account, date) DO NOTHING;

-- The span that a page was asked for, where it is not the span whose rows it owns (NULL: it is); and whether the bytes
-- of a page of an earlier day are needed: it holds a row that is taken in, is owed or differs.
ALTER TABLE pages ADD COLUMN asked_start_s INTEGER;
ALTER TABLE pages ADD COLUMN asked_end_s INTEGER;
ALTER TABLE pages ADD COLUMN is_needed INTEGER NOT NULL DEFAULT 1 CONSTRAINT pages_is_needed CHECK (is_needed IN (0, 1));

-- How far the reading of one day by one pull is. Pages before `first_page` belong to a reading that was given up: they
-- stay as evidence and do not count. `outcome`: NULL while it is read, 'whole', or 'given up' for a day that takes
-- nothing in, with the reason.
CREATE TABLE readings (
    run         INTEGER NOT NULL CONSTRAINT readings_run REFERENCES runs (id),
    pull        INTEGER NOT NULL,
    period      TEXT    NOT NULL,
    first_page  INTEGER NOT NULL,
    began_at_ms INTEGER NOT NULL,
    outcome     TEXT    CONSTRAINT readings_outcome CHECK (outcome IN ('whole', 'given up')),
    reason      TEXT,
    CONSTRAINT readings_key PRIMARY KEY (run, pull, period)
) STRICT;

INSERT INTO readings (run, pull, period, first_page, began_at_ms, outcome)
SELECT listed.run, listed.pull, listed.period, 1, runs.pull_started_at_ms,
       CASE WHEN runs.state = 'pulling' OR attempts.run IS NULL THEN NULL ELSE 'whole' END
FROM (SELECT DISTINCT run, pull, period FROM pages) AS listed
JOIN runs ON runs.id = listed.run AND runs.pull = listed.pull
LEFT JOIN attempts ON attempts.run = runs.id AND attempts.number = runs.attempt;

-- A row that was asked for by its id, as the processor sent it.
CREATE TABLE row_answers (
    run            INTEGER NOT NULL CONSTRAINT row_answers_run REFERENCES runs (id),
    pull           INTEGER NOT NULL,
    transaction_id TEXT    NOT NULL,
    period         TEXT    NOT NULL,
    body           BLOB    NOT NULL,
    body_sha256    TEXT    NOT NULL,
    received_at_ms INTEGER NOT NULL,
    CONSTRAINT row_answers_key PRIMARY KEY (run, pull, transaction_id)
) STRICT;

-- Which frozen runs have listed an earlier day whole, when that began and how many pages it had.
CREATE TABLE day_listings (
    account     TEXT    NOT NULL,
    period      TEXT    NOT NULL,
    run         INTEGER NOT NULL CONSTRAINT day_listings_run REFERENCES runs (id),
    began_at_ms INTEGER NOT NULL,
    page_count  INTEGER NOT NULL,
    CONSTRAINT day_listings_key PRIMARY KEY (account, period, run)
) STRICT;

INSERT INTO day_listings (account, period, run, began_at_ms, page_count)
SELECT runs.account, pages.period, runs.id, runs.pull_started_at_ms, count(*)
FROM pages
JOIN runs ON runs.id = pages.run AND runs.pull = pages.pull
JOIN attempts ON attempts.run = runs.id AND attempts.number = runs.attempt
WHERE pages.period <> runs.date
    -- A day that begins later than the day before ended is to be listed again, with the gap.
    AND NOT EXISTS (
        SELECT 1 FROM runs AS day
        JOIN runs AS before ON before.account = day.account AND before.date = date(day.date, '-1 day')
        WHERE day.account = runs.account AND day.date = pages.period AND before.window_end_s < day.window_start_s)
GROUP BY runs.id, pages.period;

-- Every row that a run has read as available on its own day or taken in late: digests of 8 bytes, keyed by this
-- database, for good. `account` is its number. A row counts once its run is frozen, and a hit is confirmed by the exact
-- id in that run's evidence.
CREATE TABLE settled_ids (
    account INTEGER NOT NULL,
    digest  INTEGER NOT NULL,
    run     INTEGER NOT NULL,
    CONSTRAINT settled_ids_key PRIMARY KEY (account, digest, run)
) STRICT, WITHOUT ROWID;

-- Rows on a run's own list that another run held (NULL: that a person had written off): passed over, and named.
CREATE TABLE moved_rows (
    run            INTEGER NOT NULL CONSTRAINT moved_rows_run REFERENCES runs (id),
    transaction_id TEXT    NOT NULL,
    period         TEXT    NOT NULL,
    held_by_run    INTEGER CONSTRAINT moved_rows_held_by_run REFERENCES runs (id),
    is_different   INTEGER NOT NULL CONSTRAINT moved_rows_is_different CHECK (is_different IN (0, 1)),
    CONSTRAINT moved_rows_key PRIMARY KEY (run, transaction_id)
) STRICT;

-- Rows that differ from what was settled, that are gone, or that cannot be settled: what each was and is, as the
-- processor sent it. `decision`: NULL while nobody has ended it. A correction is settled by `taken_by_run`.
CREATE TABLE differences (
    account        TEXT    NOT NULL,
    transaction_id TEXT    NOT NULL,
    revision       INTEGER NOT NULL,
    kind           TEXT    NOT NULL CONSTRAINT differences_kind CHECK (kind IN ('changed', 'vanished', 'wrong')),
    period         TEXT    NOT NULL,
    held_by_run    INTEGER CONSTRAINT differences_held_by_run REFERENCES runs (id),
    was            BLOB,
    is_now         BLOB,
    detail         TEXT,
    seen_by_run    INTEGER CONSTRAINT differences_seen_by_run REFERENCES runs (id),
    seen_at_ms     INTEGER NOT NULL,
    decision       TEXT    CONSTRAINT differences_decision CHECK (
        decision IN ('settle', 'dismiss', 'came back', 'superseded', 'moved', 'written off')),
    decided_by     TEXT,
    reason         TEXT,
    decided_at_ms  INTEGER,
    taken_by_run   INTEGER CONSTRAINT differences_taken_by_run REFERENCES runs (id),
    CONSTRAINT differences_key PRIMARY KEY (account, transaction_id, revision)
) STRICT;

CREATE INDEX differences_period ON differences (account, period);
CREATE INDEX differences_taken ON differences (taken_by_run) WHERE taken_by_run IS NOT NULL;

-- When an owed row becomes available (unix seconds, as the processor said), the run that settled it, under whatever day,
-- and the run that saw it available after it was written off.
ALTER TABLE outstanding ADD COLUMN available_on_s INTEGER;
ALTER TABLE outstanding ADD COLUMN taken_by_run INTEGER CONSTRAINT outstanding_taken_by_run REFERENCES runs (id);
ALTER TABLE outstanding ADD COLUMN available_run INTEGER CONSTRAINT outstanding_available_run REFERENCES runs (id);

UPDATE outstanding
SET taken_by_run = (SELECT run FROM late_rows
                    WHERE late_rows.account = outstanding.account
                        AND late_rows.transaction_id = outstanding.transaction_id);

CREATE INDEX outstanding_owed ON outstanding (account, period) WHERE taken_by_run IS NULL AND written_off_ms IS NULL;
CREATE INDEX outstanding_taken ON outstanding (taken_by_run) WHERE taken_by_run IS NOT NULL;
CREATE INDEX outstanding_written_off ON outstanding (account) WHERE written_off_ms IS NOT NULL;

-- Days for which the processor had no settlement when it was asked, so that it is not asked again for a while.
CREATE TABLE empty_lookups (
    account     TEXT    NOT NULL,
    date        TEXT    NOT NULL,
    asked_at_ms INTEGER NOT NULL,
    CONSTRAINT empty_lookups_key PRIMARY KEY (account, date)
) STRICT, WITHOUT ROWID;
