-- The queries of the table of changes; parameters and columns go by name.

-- name: insert_change
INSERT INTO changes (at_ms, channel, principal, account, what, subject, detail)
VALUES (:at_ms, :channel, :principal, :account, :what, :subject, :detail);

-- name: changes
-- Newest first, before a number.
SELECT number, at_ms, channel, principal, account, what, subject, detail FROM changes
WHERE number < :before ORDER BY number DESC LIMIT :limit;

-- name: changes_of_account
SELECT number, at_ms, channel, principal, account, what, subject, detail FROM changes
WHERE account = :account AND number < :before ORDER BY number DESC LIMIT :limit;
