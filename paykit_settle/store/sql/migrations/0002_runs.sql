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
