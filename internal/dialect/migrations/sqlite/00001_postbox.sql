-- +goose Up

-- A spool is a durable queue of messages: an outbox, or a queue of an inbox. What operators say
-- of it stands here too, and its version grows with every change, so that processes notice.
-- history is for how long (in microseconds) its drainers keep messages that are done, so that
-- whoever cleans up knows. batches is the age or the schedule by which a queue's messages are
-- due, as the code encodes it, so that whoever counts knows what is late.
-- A pause whose end has come is none, although it stands here.
CREATE TABLE {spools} (
	id    INTEGER PRIMARY KEY AUTOINCREMENT,
	name  TEXT NOT NULL UNIQUE,
	version INTEGER NOT NULL DEFAULT 0,
	paused_at INTEGER,
	paused_by TEXT NOT NULL DEFAULT '',
	pause_reason TEXT NOT NULL DEFAULT '',
	pause_ends_at INTEGER NOT NULL DEFAULT 9223372036854775807,
	settings TEXT NOT NULL DEFAULT '',
	history INTEGER NOT NULL DEFAULT 0,
	batches TEXT NOT NULL DEFAULT ''
);

-- Who drains a lane, under which fencing token. The row changes when the holder does, and not
-- while it stays: the lease is that of the holder, in the table of members. A lane whose holder is
-- no member can be taken. It is suspect while one of its messages may have brought down the
-- process that held it.
CREATE TABLE {lanes} (
	spool      INTEGER NOT NULL,
	lane       INTEGER NOT NULL,
	holder     TEXT,
	token      INTEGER NOT NULL DEFAULT 0,
	suspect    INTEGER NOT NULL DEFAULT 0,
	PRIMARY KEY (spool, lane)
) WITHOUT ROWID;

-- The processes that drain a spool. Each holds its lanes until expires_at (microseconds since
-- 1970, by this database's clock), which it renews. A process that looks for lanes first deletes
-- the rows that have expired. sharing is 1 for those that are due a share of the lanes, and 0 for
-- one that stops.
CREATE TABLE {members} (
	spool      INTEGER NOT NULL,
	holder     TEXT NOT NULL,
	in_flight  TEXT NOT NULL,
	expires_at INTEGER NOT NULL,
	sharing    INTEGER NOT NULL DEFAULT 1,
	PRIMARY KEY (spool, holder)
) WITHOUT ROWID;

-- What all processes share of a limit: of a topic, or with an empty name of the whole spool. Slot 0
-- is its rate, whose token is the time until which it is used up (microseconds since 1970). Each
-- other slot is a call that may run, and is held as a lane is: one whose holder is no member can be
-- taken. A row is changed only if its token is as it was read, and gets another one.
CREATE TABLE {limits} (
	spool      INTEGER NOT NULL,
	name       TEXT NOT NULL,
	slot       INTEGER NOT NULL,
	holder     TEXT,
	token      INTEGER NOT NULL,
	PRIMARY KEY (spool, name, slot)
) WITHOUT ROWID;

-- state: 0 ready, 1 scheduled, 2 retrying. AUTOINCREMENT: an id is never given out twice, also
-- after a delete. starts counts the times that a suspect was handed to a handler and has not
-- come back.
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
	payload      BLOB
);

CREATE INDEX {prefix}messages_ready ON {messages} (spool, state, lane, id);
CREATE INDEX {prefix}messages_due ON {messages} (spool, available_at) WHERE state > 0;
CREATE INDEX {prefix}messages_retrying ON {messages} (spool, key_hash, id) WHERE state = 2;

-- One row a failed attempt. The subject is a stored message or an inbox's claim, as the code
-- encodes it.
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

-- origin: 0 a message of a spool, 1 a message that an inbox could not handle. cause is why the
-- message died, as a number that the code gives; 0 is unknown.
CREATE TABLE {dead_letters} (
	id           INTEGER PRIMARY KEY AUTOINCREMENT,
	origin       INTEGER NOT NULL,
	subject      BLOB NOT NULL,
	spool        INTEGER,
	consumer     TEXT NOT NULL,
	topic        TEXT NOT NULL,
	message_id   BLOB NOT NULL,
	source_topic TEXT,
	carried_id   BLOB,
	ordering_key BLOB,
	key_hash     INTEGER,
	payload      BLOB,
	metadata     BLOB NOT NULL,
	created_at   INTEGER NOT NULL,
	died_at      INTEGER NOT NULL,
	attempts     INTEGER NOT NULL,
	error        TEXT NOT NULL,
	resolved_at  INTEGER,
	resolution   TEXT,
	cause        INTEGER NOT NULL DEFAULT 0
);

CREATE INDEX {prefix}dead_letters_died_at ON {dead_letters} (spool, died_at);
CREATE INDEX {prefix}dead_letters_message_id ON {dead_letters} (message_id);

-- Cleanup: one process at a time does each chore, and the next one goes on where it stopped.
CREATE TABLE {chores} (
	name       TEXT PRIMARY KEY,
	holder     TEXT NOT NULL DEFAULT '',
	expires_at INTEGER NOT NULL DEFAULT 0,
	progress   BLOB
) WITHOUT ROWID;

-- What an inbox has handled. The key is 16 bytes for consumer and topic and then the message id,
-- so the claims of time-ordered ids lie side by side. Narrow on purpose: it is kept for the
-- whole retention.
CREATE TABLE {claims} (
	claim_key  BLOB NOT NULL PRIMARY KEY,
	claimed_at INTEGER NOT NULL
) WITHOUT ROWID;

-- Tables written by watermill-sql from which messages are taken over: everything up to here has
-- been.
CREATE TABLE {sources} (
	name           TEXT PRIMARY KEY,
	transaction_id INTEGER NOT NULL,
	row_offset     INTEGER NOT NULL
) WITHOUT ROWID;

-- Keys of which nothing is handled until an operator says so.
CREATE TABLE {pauses} (
	id           INTEGER PRIMARY KEY,
	spool        INTEGER NOT NULL,
	key_hash     INTEGER NOT NULL,
	ordering_key BLOB NOT NULL,
	paused_at    INTEGER NOT NULL,
	paused_by    TEXT NOT NULL DEFAULT '',
	reason       TEXT NOT NULL DEFAULT ''
);

CREATE INDEX {prefix}pauses_key ON {pauses} (spool, key_hash);

-- Messages that were done, of spools that keep them. The id is that of the message. It names no
-- message by itself: after a failover, or with a counter that was set back, the database gives
-- out ids again. omitted is how many bytes of payload and metadata were too large to be kept.
-- took is the time from the call of its handler or publisher until it was settled, in
-- microseconds, and 0 where that is not known. process is who has handled the message.
CREATE TABLE {history} (
	id           INTEGER NOT NULL,
	spool        INTEGER NOT NULL,
	topic        TEXT NOT NULL,
	message_id   BLOB NOT NULL,
	source_topic TEXT,
	carried_id   BLOB,
	ordering_key BLOB,
	payload      BLOB,
	metadata     BLOB NOT NULL,
	created_at   INTEGER NOT NULL,
	done_at      INTEGER NOT NULL,
	attempts     INTEGER NOT NULL,
	omitted      INTEGER NOT NULL DEFAULT 0,
	took         INTEGER NOT NULL DEFAULT 0,
	process      TEXT,
	PRIMARY KEY (id, created_at)
);

CREATE INDEX {prefix}history_done_at ON {history} (spool, done_at);
CREATE INDEX {prefix}history_message_id ON {history} (message_id);

-- Whose tables these are, such as those of production: a copy of the database has the name with
-- it. At most one row.
CREATE TABLE {deployment} (
	id   INTEGER PRIMARY KEY CHECK (id = 1),
	name TEXT NOT NULL
);

-- What tells these tables from those of another database: drawn by lot. A copy of the database
-- has it too.
CREATE TABLE {identity} (
	id       INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
	identity TEXT NOT NULL
);
INSERT INTO {identity} VALUES (1, lower(hex(randomblob(16))));

-- One row for each action of an operator, written in the transaction of its effect. An action on
-- many things has one row, whose number grows with each of its transactions, which find it by
-- its operation.
CREATE TABLE {audit} (
	id        INTEGER PRIMARY KEY AUTOINCREMENT,
	operation TEXT NOT NULL UNIQUE,
	acted_at  INTEGER NOT NULL,
	actor     TEXT NOT NULL,
	action    TEXT NOT NULL,
	target    TEXT NOT NULL,
	subject   TEXT NOT NULL,
	filter    TEXT NOT NULL,
	affected  INTEGER NOT NULL,
	note      TEXT NOT NULL
);

CREATE INDEX {prefix}audit_acted_at ON {audit} (acted_at);

-- Topics of which nothing is published until an operator says so, or until the end of the pause.
CREATE TABLE {topic_pauses} (
	spool     INTEGER NOT NULL,
	topic     TEXT NOT NULL,
	paused_at INTEGER NOT NULL,
	paused_by TEXT NOT NULL DEFAULT '',
	reason    TEXT NOT NULL DEFAULT '',
	ends_at   INTEGER NOT NULL DEFAULT 9223372036854775807,
	PRIMARY KEY (spool, topic)
) WITHOUT ROWID;

-- What each process did in a minute, of one outbox or queue: package minutes writes it. The minute
-- counts from 1970, by the clock of the process; times are in microseconds. starts is 1 in the
-- first row of a process.
CREATE TABLE {minutes} (
	minute   INTEGER NOT NULL,
	arrived  INTEGER NOT NULL,
	done     INTEGER NOT NULL,
	failed   INTEGER NOT NULL,
	dead     INTEGER NOT NULL,
	wait_p50 INTEGER NOT NULL,
	wait_p95 INTEGER NOT NULL,
	call_p50 INTEGER NOT NULL,
	call_p95 INTEGER NOT NULL,
	starts   INTEGER NOT NULL,
	kind     TEXT NOT NULL,
	name     TEXT NOT NULL,
	process  TEXT NOT NULL,
	PRIMARY KEY (kind, name, minute, process)
) WITHOUT ROWID;

CREATE INDEX {prefix}minutes_minute ON {minutes} (minute);

-- Which consumers have handled which message: one row for each receipt that is awaited or has
-- come. The key is that of the message, and then 16 bytes for topic and consumer, so the rows of
-- a message lie side by side. State: 0 awaited, 1 missing, 2 received. A receipt that was not
-- awaited has no sent_at, and is due when it comes.
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

-- The message that was stored last under a unique key. It waits for as long as its row exists,
-- so nothing is written here when it is done. The digest is a hash of spool, topic and key.
CREATE TABLE {unique_keys} (
	digest     BLOB NOT NULL PRIMARY KEY,
	spool      INTEGER NOT NULL,
	id         INTEGER NOT NULL,
	created_at INTEGER NOT NULL
) WITHOUT ROWID;
