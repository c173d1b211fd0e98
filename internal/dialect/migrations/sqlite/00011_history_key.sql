-- An id names no message by itself: a file that is replaced by an older copy gives out ids again. A message whose id the history
-- has, from another time, could not be moved there.
--
-- SQLite cannot change the key of a table, so this writes it anew, and nobody else writes to the file meanwhile.
ALTER TABLE {history} RENAME TO {prefix}history_by_id;

CREATE TABLE {history} (
	id           INTEGER NOT NULL,
	spool        INTEGER NOT NULL,
	topic        TEXT NOT NULL,
	message_id   BLOB NOT NULL,
	ordering_key BLOB,
	payload      BLOB NOT NULL,
	metadata     BLOB NOT NULL,
	created_at   INTEGER NOT NULL,
	done_at      INTEGER NOT NULL,
	attempts     INTEGER NOT NULL,
	PRIMARY KEY (id, created_at)
);

INSERT INTO {history} SELECT * FROM {prefix}history_by_id;

DROP TABLE {prefix}history_by_id;

CREATE INDEX {prefix}history_done_at ON {history} (spool, done_at);
