-- A spool is a durable queue of messages: an outbox, or a queue of an inbox. Its number of lanes is part of the
-- data, since it decides in which lane a key lives. What operators say of it stands here too, and its version grows
-- with every change, so that processes notice. history is for how long (in microseconds) its drainers keep messages that
-- are done, so that whoever cleans up knows.
CREATE TABLE {spools} (
	id    INTEGER PRIMARY KEY AUTOINCREMENT,
	name  TEXT NOT NULL UNIQUE,
	lanes INTEGER NOT NULL,
	version INTEGER NOT NULL DEFAULT 0,
	paused_at INTEGER,
	settings TEXT NOT NULL DEFAULT '',
	history INTEGER NOT NULL DEFAULT 0
);

-- Who drains a lane, until when (microseconds since 1970, by this database's clock), under which fencing token. A
-- lane is suspect while one of its messages may have brought down the process that held it.
CREATE TABLE {lanes} (
	spool      INTEGER NOT NULL,
	lane       INTEGER NOT NULL,
	holder     TEXT,
	token      INTEGER NOT NULL DEFAULT 0,
	expires_at INTEGER NOT NULL DEFAULT 0,
	suspect    INTEGER NOT NULL DEFAULT 0,
	PRIMARY KEY (spool, lane)
) WITHOUT ROWID;

-- The processes that drain a spool, so that each can tell its fair share of the lanes.
CREATE TABLE {members} (
	spool      INTEGER NOT NULL,
	holder     TEXT NOT NULL,
	in_flight  TEXT NOT NULL,
	expires_at INTEGER NOT NULL,
	PRIMARY KEY (spool, holder)
) WITHOUT ROWID;

-- state: 0 ready, 1 scheduled, 2 retrying. AUTOINCREMENT: an id is never given out twice, also after a delete.
-- starts counts the times that a suspect was handed to a handler and has not come back.
CREATE TABLE {messages} (
	id           INTEGER PRIMARY KEY AUTOINCREMENT,
	spool        INTEGER NOT NULL,
	state        INTEGER NOT NULL,
	lane         INTEGER NOT NULL,
	key_hash     INTEGER,
	available_at INTEGER NOT NULL,
	created_at   INTEGER NOT NULL,
	attempts     INTEGER NOT NULL DEFAULT 0,
	starts       INTEGER NOT NULL DEFAULT 0,
	topic        TEXT NOT NULL,
	message_id   BLOB NOT NULL,
	ordering_key BLOB,
	metadata     BLOB NOT NULL,
	payload      BLOB NOT NULL
);

CREATE INDEX {prefix}messages_ready ON {messages} (spool, state, lane, id);
CREATE INDEX {prefix}messages_due ON {messages} (spool, available_at) WHERE state > 0;
CREATE INDEX {prefix}messages_retrying ON {messages} (spool, key_hash, id) WHERE state = 2;
