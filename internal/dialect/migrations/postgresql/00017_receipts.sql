-- +goose Up

-- Which consumers have handled which message: one row for each receipt that is awaited or has come. The key is that of the message, and
-- then 16 bytes for topic and consumer, so the rows of a message lie side by side. State: 0 awaited, 1 missing, 2 received. A receipt that
-- was not awaited has no sent_at, and is due when it comes.
CREATE TABLE {receipts} (
	due_at      bigint NOT NULL,
	sent_at     bigint,
	handled_at  bigint,
	received_at bigint,
	state       smallint NOT NULL,
	receipt_key bytea PRIMARY KEY,
	topic       text NOT NULL,
	message_id  bytea NOT NULL,
	consumer    text NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02);

-- Finds what is overdue, what is missing, and what is too old.
CREATE INDEX {prefix}receipts_due ON {receipts} (state, due_at, receipt_key);
