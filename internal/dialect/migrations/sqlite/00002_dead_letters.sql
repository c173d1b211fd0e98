-- One row a failed attempt. The subject is a stored message or an inbox's claim, as the code encodes it.
CREATE TABLE {failures} (
	id        INTEGER PRIMARY KEY AUTOINCREMENT,
	subject   BLOB NOT NULL,
	attempt   INTEGER NOT NULL,
	failed_at INTEGER NOT NULL,
	error     TEXT NOT NULL,
	process   TEXT NOT NULL
);

CREATE INDEX {prefix}failures_subject ON {failures} (subject, id);
CREATE INDEX {prefix}failures_failed_at ON {failures} (failed_at);

-- origin: 0 a message of a spool, 1 a message that an inbox could not handle.
CREATE TABLE {dead_letters} (
	id           INTEGER PRIMARY KEY AUTOINCREMENT,
	origin       INTEGER NOT NULL,
	subject      BLOB NOT NULL,
	spool        INTEGER,
	consumer     TEXT NOT NULL,
	topic        TEXT NOT NULL,
	message_id   BLOB NOT NULL,
	ordering_key BLOB,
	key_hash     INTEGER,
	payload      BLOB NOT NULL,
	metadata     BLOB NOT NULL,
	created_at   INTEGER NOT NULL,
	died_at      INTEGER NOT NULL,
	attempts     INTEGER NOT NULL,
	error        TEXT NOT NULL,
	resolved_at  INTEGER,
	resolution   TEXT
);

CREATE INDEX {prefix}dead_letters_died_at ON {dead_letters} (spool, died_at);

-- Cleanup: one process at a time does each chore, and the next one goes on where it stopped.
CREATE TABLE {chores} (
	name       TEXT PRIMARY KEY,
	holder     TEXT NOT NULL DEFAULT '',
	expires_at INTEGER NOT NULL DEFAULT 0,
	progress   BLOB
) WITHOUT ROWID;
