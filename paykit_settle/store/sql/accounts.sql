-- The queries of settled accounts and of the edges between their days; parameters and columns go by name.

-- part: account_columns
number, account, tenant, zone, processor_url, key_mode, disagreement

-- name: account
SELECT {account_columns} FROM settled_accounts WHERE account = :account;

-- name: disagreements
SELECT {account_columns} FROM settled_accounts WHERE disagreement IS NOT NULL AND (:account = '' OR account = :account)
ORDER BY account;

-- name: insert_account
INSERT INTO settled_accounts (account, tenant, zone, processor_url, key_mode)
VALUES (:account, :tenant, :zone, :processor_url, :key_mode);

-- name: change_account
UPDATE settled_accounts
SET tenant = :tenant, zone = :zone, processor_url = :processor_url, key_mode = :key_mode
WHERE account = :account;

-- name: has_frozen
-- Whether anything was ever frozen for the account: from then on its tenant is fixed.
SELECT 1 AS found FROM attempts JOIN runs ON runs.id = attempts.run WHERE runs.account = :account LIMIT 1;

-- name: move_unfinished
-- Runs that are not posted go on at the processor's new address.
UPDATE runs SET processor_url = :processor_url, key_mode = :key_mode WHERE account = :account AND state <> 'posted';

-- name: held_runs
SELECT id AS number, owner FROM runs WHERE account = :account AND owner IS NOT NULL;

-- name: nearby_edges
-- The edges of a day, and the nearest on either side of them.
SELECT date, start_s FROM day_edges WHERE account = :account AND date IN (:date, :next)
UNION ALL
SELECT date, start_s FROM (
    SELECT date, start_s FROM day_edges WHERE account = :account AND date < :date ORDER BY date DESC LIMIT 1)
UNION ALL
SELECT date, start_s FROM (
    SELECT date, start_s FROM day_edges WHERE account = :account AND date > :next ORDER BY date LIMIT 1);

-- name: put_edge
INSERT INTO day_edges (account, date, start_s) VALUES (:account, :date, :start_s)
ON CONFLICT (account, date) DO UPDATE SET start_s = :start_s;

-- name: empty_days
-- Days of a span for which nothing is left between their edges: they do not exist.
SELECT this.date FROM day_edges AS this
JOIN day_edges AS next ON next.account = this.account AND next.date = date(this.date, '+1 day')
WHERE this.account = :account AND this.date >= :first AND this.date <= :last AND this.start_s = next.start_s;

-- name: run_windows
-- The windows of the runs of a day and of the days beside it.
SELECT date, window_start_s, window_end_s FROM runs WHERE account = :account AND date IN (:before, :date, :next);
