-- The queries of the ledger. Each begins with a line `-- name: NAME`. A batch is few statements: a list of keys comes in
-- as one JSON array, and where rows are written, their `VALUES (...)` is repeated.

-- name: find_journals
-- Which of the keys [tenant, operation, key] are in use, in the order asked.
SELECT wanted.key, journals.fingerprint, journals.answer
FROM json_each(?) AS wanted
CROSS JOIN journals
    ON journals.tenant = wanted.value ->> 0
    AND journals.operation = wanted.value ->> 1
    AND journals.key = wanted.value ->> 2;

-- name: find_accounts
-- The accounts [tenant, id, currency] that exist.
SELECT accounts.tenant, accounts.id, accounts.currency, accounts.number, accounts.balance, accounts.floor
FROM json_each(?) AS wanted
CROSS JOIN accounts
    ON accounts.tenant = wanted.value ->> 0
    AND accounts.id = wanted.value ->> 1
    AND accounts.currency = wanted.value ->> 2;

-- name: data_version
-- Changes when another connection, also of another process, has committed.
PRAGMA data_version;

-- name: last_journal_id
SELECT max(id) FROM journals;

-- name: insert_account
INSERT INTO accounts (tenant, id, currency, balance, floor, created_at_ms) VALUES (?, ?, ?, ?, ?, ?);

-- name: move_balance
-- Only from the balance that was read in this transaction: anything else is a bug, and changes no row.
UPDATE accounts SET balance = ? WHERE number = ? AND balance = ?;

-- name: move_balances
-- The same for many.
WITH moves (after, number, before) AS (VALUES (?, ?, ?))
UPDATE accounts SET balance = moves.after
FROM moves
WHERE accounts.number = moves.number AND accounts.balance = moves.before;

-- name: insert_journal
INSERT INTO journals (id, tenant, operation, key, fingerprint, answer, details, event_at_ms, recorded_at_ms)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: remove_journals
-- Those from a number on: only what the open transaction wrote itself, and has not booked entries for.
DELETE FROM journals WHERE id >= ?;

-- name: insert_entry
INSERT INTO entries (journal, position, account, currency, amount, balance_before, balance_after, details)
VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: balance
SELECT balance FROM accounts WHERE tenant = ? AND id = ? AND currency = ?;

-- name: account
-- An account by name: one row, but for `balance`, which has one per currency.
SELECT id, currency, balance, floor FROM accounts WHERE tenant = ? AND id = ? ORDER BY currency;

-- name: accounts_page
-- The accounts of the next names in order after a name; a name's currencies are never split over two pages.
SELECT id, currency, balance, floor
FROM accounts
WHERE tenant = ?1
    AND id IN (SELECT DISTINCT id FROM accounts WHERE tenant = ?1 AND id > ?2 ORDER BY id LIMIT ?3)
ORDER BY id, currency;

-- name: journal_id
SELECT id FROM journals WHERE tenant = ? AND operation = ? AND key = ?;

-- name: transfers_page
-- A tenant's newest transfers below a journal id, as they were answered.
SELECT answer
FROM journals
WHERE tenant = ? AND operation = 'transfer' AND id < ? ORDER BY id DESC LIMIT ?;

-- name: counter_balances
-- What a tenant's counter-accounts stand at: each sum in parts of high and low 32 bits, for a plain sum may overflow.
SELECT entries.account, entries.currency, sum(entries.amount >> 32), sum(entries.amount & 4294967295)
FROM journals
JOIN entries ON entries.journal = journals.id
WHERE journals.tenant = ? AND substr(entries.account, 1, 1) = '@'
GROUP BY entries.account, entries.currency
ORDER BY entries.account, entries.currency;
