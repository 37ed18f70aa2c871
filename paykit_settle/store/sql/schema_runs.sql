-- Runs: one per account and day, for ever; what each attempt froze; every page as it came; rows that are owed.
-- Dates are ISO 8601 texts, times unix milliseconds (UTC) unless the name says otherwise, documents JSON.

CREATE TABLE runs (
    id                  INTEGER PRIMARY KEY,
    account             TEXT    NOT NULL,
    date                TEXT    NOT NULL,
    tenant              TEXT    NOT NULL,
    state               TEXT    NOT NULL CONSTRAINT runs_state CHECK (
        state IN ('pulling', 'frozen', 'posted', 'failed', 'rejected', 'unknown')),
    settlement_currency TEXT    NOT NULL,
    zone                TEXT    NOT NULL,
    window_start_s      INTEGER NOT NULL,
    window_end_s        INTEGER NOT NULL CONSTRAINT runs_window CHECK (window_end_s > window_start_s),
    attempt             INTEGER NOT NULL,
    pull                INTEGER NOT NULL,
    pull_started_at_ms  INTEGER NOT NULL,
    owner               TEXT,
    requested_by        TEXT    NOT NULL,
    settlement_id       TEXT,
    error_code          TEXT,
    error_detail        TEXT,
    created_at_ms       INTEGER NOT NULL,
    changed_at_ms       INTEGER NOT NULL,
    processor_url TEXT,
    key_mode TEXT,
    terms TEXT,
    rates_given BLOB,
    indexed_pull INTEGER,
    retry_at_ms INTEGER,
    tries INTEGER NOT NULL DEFAULT 0,
    needs_person INTEGER NOT NULL DEFAULT 0
    CONSTRAINT runs_needs_person CHECK (needs_person IN (0, 1)),
    attention TEXT,
    covers TEXT CONSTRAINT runs_covers CHECK (covers IN ('all', 'none', 'listed')),
    principal TEXT,
    CONSTRAINT runs_key UNIQUE (account, date)
) STRICT;

CREATE INDEX runs_settlement ON runs (settlement_id) WHERE settlement_id IS NOT NULL;
CREATE INDEX runs_unfinished ON runs (state) WHERE state IN ('pulling', 'frozen', 'unknown');

-- What an attempt sends: written before it is sent, never changed but for what became of it.
CREATE TABLE attempts (
    run               INTEGER NOT NULL CONSTRAINT attempts_run REFERENCES runs (id),
    number            INTEGER NOT NULL,
    pull              INTEGER NOT NULL,
    idempotency_key   TEXT    NOT NULL,
    body              BLOB    NOT NULL,
    body_sha256       TEXT    NOT NULL,
    settlement        TEXT    NOT NULL,
    rates_body        BLOB,
    scales            TEXT    NOT NULL,
    evidence_sha256   TEXT    NOT NULL,
    program           TEXT    NOT NULL,
    frozen_at_ms      INTEGER NOT NULL,
    sent_at_ms        INTEGER,
    ended_at_ms       INTEGER,
    outcome           TEXT,
    detail            TEXT,
    settlement_id     TEXT,
    status            TEXT,
    key_spent_at_ms INTEGER,
    first_empty_at_ms INTEGER,
    refusal TEXT,
    taken TEXT CONSTRAINT attempts_taken CHECK (taken IN ('itemised', 'total only')),
    CONSTRAINT attempts_key PRIMARY KEY (run, number)
) STRICT;

-- The windows that a day was read in: half open, they tile it. `serial_reason`: why there are no more of them.
CREATE TABLE windows (
    run           INTEGER NOT NULL CONSTRAINT windows_run REFERENCES runs (id),
    pull          INTEGER NOT NULL,
    period        TEXT    NOT NULL,
    number        INTEGER NOT NULL,
    start_s       INTEGER NOT NULL,
    end_s         INTEGER NOT NULL CONSTRAINT windows_span CHECK (end_s > start_s),
    serial_reason TEXT,
    CONSTRAINT windows_key PRIMARY KEY (run, pull, period, number)
) STRICT;

-- A page of a list as the processor sent it. `period` is the day it was asked for: the run's own, or an earlier one.
-- Numbers are in the order of arrival. Rows created in [window_start_s, window_end_s) are the page's own.
CREATE TABLE pages (
    run            INTEGER NOT NULL CONSTRAINT pages_run REFERENCES runs (id),
    pull           INTEGER NOT NULL,
    period         TEXT    NOT NULL,
    number         INTEGER NOT NULL,
    window         INTEGER NOT NULL,
    cursor         TEXT,
    last_id        TEXT,
    row_count      INTEGER NOT NULL,
    has_more       INTEGER NOT NULL CONSTRAINT pages_has_more CHECK (has_more IN (0, 1)),
    window_start_s INTEGER NOT NULL,
    window_end_s   INTEGER NOT NULL,
    body           BLOB,
    available_ids  BLOB,
    body_sha256    TEXT    NOT NULL,
    chain_sha256   TEXT    NOT NULL,
    received_at_ms INTEGER NOT NULL,
    asked_start_s INTEGER,
    asked_end_s INTEGER,
    is_needed INTEGER NOT NULL DEFAULT 1 CONSTRAINT pages_is_needed CHECK (is_needed IN (0, 1)),
    CONSTRAINT pages_key PRIMARY KEY (run, pull, period, number)
) STRICT;

-- Rows that were pending when their day was settled: owed until a run takes them in or a person writes them off.
CREATE TABLE outstanding (
    account         TEXT    NOT NULL,
    transaction_id  TEXT    NOT NULL,
    period          TEXT    NOT NULL,
    type            TEXT    NOT NULL,
    currency        TEXT    NOT NULL,
    amount          INTEGER NOT NULL,
    fee             INTEGER NOT NULL,
    seen_by_run     INTEGER NOT NULL CONSTRAINT outstanding_run REFERENCES runs (id),
    seen_at_ms      INTEGER NOT NULL,
    written_off_ms  INTEGER,
    written_off_by  TEXT,
    reason          TEXT,
    available_on_s INTEGER,
    taken_by_run INTEGER CONSTRAINT outstanding_taken_by_run REFERENCES runs (id),
    available_run INTEGER CONSTRAINT outstanding_available_run REFERENCES runs (id),
    CONSTRAINT outstanding_key PRIMARY KEY (account, transaction_id)
) STRICT;

-- Rows of earlier days that a later run took in. The key is what keeps two runs from settling one row.
CREATE TABLE late_rows (
    account        TEXT    NOT NULL,
    transaction_id TEXT    NOT NULL,
    period         TEXT    NOT NULL,
    run            INTEGER NOT NULL CONSTRAINT late_rows_run REFERENCES runs (id),
    CONSTRAINT late_rows_key PRIMARY KEY (account, transaction_id)
) STRICT;

CREATE INDEX late_rows_run_index ON late_rows (run);

-- What a person decided about a run, and why.
CREATE TABLE resolutions (
    run           INTEGER NOT NULL CONSTRAINT resolutions_run REFERENCES runs (id),
    attempt       INTEGER NOT NULL,
    decision      TEXT    NOT NULL CONSTRAINT resolutions_decision CHECK (decision IN ('posted', 'absent')),
    settlement_id TEXT,
    reason        TEXT    NOT NULL,
    decided_by    TEXT    NOT NULL,
    decided_at_ms INTEGER NOT NULL,
    CONSTRAINT resolutions_key PRIMARY KEY (run, attempt)
) STRICT;

-- One row: the key of the digests below, and when this file was put back from a back-up.
CREATE TABLE database_facts (
    number         INTEGER PRIMARY KEY CONSTRAINT database_facts_one CHECK (number = 1),
    digest_key     BLOB    NOT NULL CONSTRAINT database_facts_digest_key CHECK (length(digest_key) = 16),
    restored_at_ms INTEGER
) STRICT;

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

-- The edge between two consecutive dates of an account: the instant at which `date` begins and the date before it ends.
CREATE TABLE day_edges (
    account TEXT    NOT NULL,
    date    TEXT    NOT NULL,
    start_s INTEGER NOT NULL,
    CONSTRAINT day_edges_key PRIMARY KEY (account, date)
) STRICT, WITHOUT ROWID;

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
