-- The ledger: accounts with a balance, and journals whose entries sum to zero per currency.
-- Amounts are minor units of a currency in lower case; times are unix milliseconds, UTC; details and answers are JSON.

-- What was applied to this file, and what it looked like then.
CREATE TABLE migrations (
    number        INTEGER PRIMARY KEY,
    name          TEXT    NOT NULL,
    sha256        TEXT    NOT NULL,
    applied_at_ms INTEGER NOT NULL
) STRICT;

CREATE TABLE accounts (
    number        INTEGER PRIMARY KEY,
    tenant        TEXT    NOT NULL,
    id            TEXT    NOT NULL CONSTRAINT accounts_id_shape CHECK (id <> '' AND substr(id, 1, 1) <> '@'),
    currency      TEXT    NOT NULL,
    balance       INTEGER NOT NULL CONSTRAINT accounts_balance_range CHECK (balance > -9223372036854775808),
    floor         INTEGER NOT NULL,
    created_at_ms INTEGER NOT NULL,
    CONSTRAINT accounts_key UNIQUE (tenant, id, currency)
) STRICT;

-- A name means one account; only `balance`, which credits and settlements raise, exists once per currency.
CREATE UNIQUE INDEX accounts_one_currency ON accounts (tenant, id) WHERE id <> 'balance';

CREATE TABLE journals (
    id             INTEGER PRIMARY KEY,
    tenant         TEXT    NOT NULL,
    operation      TEXT    NOT NULL,
    key            TEXT    NOT NULL CONSTRAINT journals_key_shape CHECK (key <> ''),
    fingerprint    BLOB    NOT NULL CONSTRAINT journals_fingerprint_sha256 CHECK (length(fingerprint) = 32),
    answer         TEXT    NOT NULL,
    details        TEXT,
    event_at_ms    INTEGER NOT NULL,
    recorded_at_ms INTEGER NOT NULL,
    CONSTRAINT journals_key UNIQUE (tenant, operation, key)
) STRICT;

-- Newest first per tenant: an index entry ends with the row's id.
CREATE INDEX journals_transfers ON journals (tenant) WHERE operation = 'transfer';

-- An account that begins with '@' is a counter-account: it has no row above, and its entries no balances.
CREATE TABLE entries (
    journal        INTEGER NOT NULL CONSTRAINT entries_journal REFERENCES journals (id),
    position       INTEGER NOT NULL,
    account        TEXT    NOT NULL,
    currency       TEXT    NOT NULL,
    amount         INTEGER NOT NULL CONSTRAINT entries_amount_range CHECK (amount > -9223372036854775808),
    balance_before INTEGER,
    balance_after  INTEGER,
    details        TEXT,
    CONSTRAINT entries_key PRIMARY KEY (journal, position),
    CONSTRAINT entries_balances CHECK (
        CASE WHEN substr(account, 1, 1) = '@' THEN balance_before IS NULL AND balance_after IS NULL
             ELSE balance_before IS NOT NULL AND balance_after IS balance_before + amount END)
) STRICT, WITHOUT ROWID;

CREATE VIEW transfers AS
SELECT journals.tenant,
       journals.key AS id,
       debit.account AS source,
       credit.account AS target,
       credit.amount,
       credit.currency,
       journals.recorded_at_ms,
       journals.id AS journal
FROM journals
JOIN entries AS debit ON debit.journal = journals.id AND debit.position = 0
JOIN entries AS credit ON credit.journal = journals.id AND credit.position = 1
WHERE journals.operation = 'transfer';
