-- +goose Up

-- Which consumers have handled which message: one row for each receipt that is awaited or has come. The key is that of the message, and
-- then 16 bytes for topic and consumer, so the rows of a message lie side by side. State: 0 awaited, 1 missing, 2 received. A receipt that
-- was not awaited has no sent_at, and is due when it comes.
CREATE TABLE {receipts} (
	receipt_key BLOB NOT NULL PRIMARY KEY,
	state       INTEGER NOT NULL,
	due_at      INTEGER NOT NULL,
	sent_at     INTEGER,
	handled_at  INTEGER,
	received_at INTEGER,
	topic       TEXT NOT NULL,
	message_id  BLOB NOT NULL,
	consumer    TEXT NOT NULL
) WITHOUT ROWID;

-- Finds what is overdue, what is missing, and what is too old.
CREATE INDEX {prefix}receipts_due ON {receipts} (state, due_at, receipt_key);
