-- What `ledger check` asks: each query finds the rows that break one promise, and none in a sound file. A plain sum
-- may overflow, so sums are kept in parts of high and low 32 bits, which is exact.

-- name: unbalanced_journals
-- Every journal sums to zero in each currency.
SELECT journals.tenant, journals.operation, journals.key, entries.currency
FROM entries
JOIN journals ON journals.id = entries.journal
GROUP BY entries.journal, entries.currency
HAVING sum(entries.amount >> 32) + (sum(entries.amount & 4294967295) >> 32) <> 0
    OR (sum(entries.amount & 4294967295) & 4294967295) <> 0
LIMIT ?;

-- name: empty_journals
-- Every journal has entries, numbered from 0 without a gap.
SELECT journals.tenant, journals.operation, journals.key
FROM journals
LEFT JOIN entries ON entries.journal = journals.id
GROUP BY journals.id
HAVING count(entries.journal) = 0 OR min(entries.position) <> 0 OR max(entries.position) <> count(*) - 1
LIMIT ?;

-- name: wrong_balances
-- Every account stands at the sum of its entries, and every entry of an account has one.
SELECT coalesce(accounts.tenant, summed.tenant), coalesce(accounts.id, summed.account),
       coalesce(accounts.currency, summed.currency)
FROM accounts
FULL JOIN (
    SELECT journals.tenant AS tenant, entries.account AS account, entries.currency AS currency,
           sum(entries.amount >> 32) AS high, sum(entries.amount & 4294967295) AS low
    FROM entries
    JOIN journals ON journals.id = entries.journal
    WHERE substr(entries.account, 1, 1) <> '@'
    GROUP BY journals.tenant, entries.account, entries.currency
) AS summed
    ON summed.tenant = accounts.tenant AND summed.account = accounts.id AND summed.currency = accounts.currency
WHERE accounts.id IS NULL
    OR (coalesce(summed.high, 0) + (coalesce(summed.low, 0) >> 32)) <> (accounts.balance >> 32)
    OR (coalesce(summed.low, 0) & 4294967295) <> (accounts.balance & 4294967295)
LIMIT ?;

-- name: broken_chains
-- Every entry of an account begins with the balance that the entry before it left, the first with 0.
SELECT tenant, operation, key, account
FROM (
    SELECT journals.tenant, journals.operation, journals.key, entries.account, entries.balance_before,
           lag(entries.balance_after, 1, 0) OVER (
               PARTITION BY journals.tenant, entries.account, entries.currency
               ORDER BY entries.journal, entries.position
           ) AS left_before
    FROM entries
    JOIN journals ON journals.id = entries.journal
    WHERE substr(entries.account, 1, 1) <> '@'
)
WHERE balance_before <> left_before
LIMIT ?;

-- name: wrong_steps
-- Every entry of an account moves its balance by the entry's amount; those of counter-accounts carry no balance.
SELECT journals.tenant, journals.operation, journals.key, entries.account
FROM entries
JOIN journals ON journals.id = entries.journal
WHERE CASE WHEN substr(entries.account, 1, 1) = '@'
           THEN entries.balance_before IS NOT NULL OR entries.balance_after IS NOT NULL
           ELSE entries.balance_before IS NULL OR entries.balance_after IS NOT entries.balance_before + entries.amount END
LIMIT ?;

-- name: broken_floors
-- No transfer took an account below its floor, and each moves one amount from one account to another.
SELECT journals.tenant, journals.operation, journals.key, entries.account
FROM journals
JOIN entries ON entries.journal = journals.id
LEFT JOIN accounts
    ON accounts.tenant = journals.tenant AND accounts.id = entries.account AND accounts.currency = entries.currency
WHERE journals.operation = 'transfer'
    AND (entries.position > 1
        OR (entries.position = 0 AND (entries.amount >= 0 OR entries.balance_after < accounts.floor))
        OR (entries.position = 1 AND entries.amount <= 0)
        OR accounts.id IS NULL)
LIMIT ?;

-- name: counts
SELECT 'accounts', count(*) FROM accounts
UNION ALL SELECT 'journals', count(*) FROM journals
UNION ALL SELECT 'entries', count(*) FROM entries;
