-- Keys of which nothing is handled until an operator says so.
CREATE TABLE {pauses} (
	spool        INTEGER NOT NULL,
	key_hash     INTEGER NOT NULL,
	ordering_key BLOB NOT NULL,
	paused_at    INTEGER NOT NULL,
	PRIMARY KEY (spool, key_hash)
);

-- Messages that were done, of spools that keep them. The id is that of the message.
CREATE TABLE {history} (
	id           INTEGER PRIMARY KEY,
	spool        INTEGER NOT NULL,
	topic        TEXT NOT NULL,
	message_id   BLOB NOT NULL,
	ordering_key BLOB,
	payload      BLOB NOT NULL,
	metadata     BLOB NOT NULL,
	created_at   INTEGER NOT NULL,
	done_at      INTEGER NOT NULL,
	attempts     INTEGER NOT NULL
);

CREATE INDEX {prefix}history_done_at ON {history} (spool, done_at);
