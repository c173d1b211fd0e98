-- +goose Up

-- Which consumers have handled which message: one row for each receipt that is awaited or has come. The key is that of the message, and
-- then 16 bytes for topic and consumer, so the rows of a message lie side by side. State: 0 awaited, 1 missing, 2 received. A receipt that
-- was not awaited has no sent_at, and is due when it comes. The index finds what is overdue, what is missing, and what is too old.
CREATE TABLE IF NOT EXISTS {receipts} (
	receipt_key VARBINARY(64) NOT NULL PRIMARY KEY,
	state       SMALLINT NOT NULL,
	due_at      BIGINT NOT NULL,
	sent_at     BIGINT,
	handled_at  BIGINT,
	received_at BIGINT,
	topic       VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
	message_id  BLOB NOT NULL,
	consumer    VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
	INDEX due (state, due_at, receipt_key)
) ENGINE = InnoDB;
