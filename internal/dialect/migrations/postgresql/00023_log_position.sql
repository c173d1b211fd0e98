-- +goose Up

-- How far the log was read whose messages have no row before they are stored: see docs/log-tailing.md. There is a row once an operator has set the log up.
-- All transactions whose commits end at the position or before it have been stored, and so have the first messages (part) of the next one. A process that
-- stores messages must have the latest epoch.
CREATE TABLE {log_position} (
	id       smallint NOT NULL PRIMARY KEY CHECK (id = 1),
	slot     text NOT NULL,
	position bigint NOT NULL,
	part     integer NOT NULL,
	epoch    bigint NOT NULL,
	saved_at bigint NOT NULL
);
