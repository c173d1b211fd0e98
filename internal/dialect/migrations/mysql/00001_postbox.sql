-- +goose Up

-- MySQL commits each of these statements by itself: IF NOT EXISTS lets a migration that was cut
-- short run again. Each table names its character set: that of the database may lack letters.

-- A spool is a durable queue of messages: an outbox, or a queue of an inbox. What operators say
-- of it stands here too, and its version grows with every change, so that processes notice.
-- history is for how long (in microseconds) its drainers keep messages that are done, so that
-- whoever cleans up knows. batches is the age or the schedule by which a queue's messages are
-- due, as the code encodes it, so that whoever counts knows what is late.
-- A pause whose end has come is none, although it stands here.
CREATE TABLE IF NOT EXISTS {spools} (
	id    INT NOT NULL AUTO_INCREMENT PRIMARY KEY,
	name  VARCHAR(255) NOT NULL UNIQUE,
	version BIGINT NOT NULL DEFAULT 0,
	paused_at BIGINT,
	paused_by VARCHAR(255) NOT NULL DEFAULT '',
	pause_reason VARCHAR(255) NOT NULL DEFAULT '',
	pause_ends_at BIGINT NOT NULL DEFAULT 9223372036854775807,
	settings VARCHAR(4096) NOT NULL DEFAULT '',
	history BIGINT NOT NULL DEFAULT 0,
	batches VARCHAR(4096) NOT NULL DEFAULT ''
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Who drains a lane, under which fencing token. The row changes when the holder does, and not
-- while it stays: the lease is that of the holder, in the table of members. A lane whose holder is
-- no member can be taken. It is suspect while one of its messages may have brought down the
-- process that held it.
CREATE TABLE IF NOT EXISTS {lanes} (
	spool      INT NOT NULL,
	lane       SMALLINT NOT NULL,
	holder     VARCHAR(255),
	token      BIGINT NOT NULL DEFAULT 0,
	suspect    SMALLINT NOT NULL DEFAULT 0,
	PRIMARY KEY (spool, lane)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The processes that drain a spool. Each holds its lanes until expires_at (microseconds since
-- 1970, by this database's clock), which it renews. A process that looks for lanes first deletes
-- the rows that have expired. sharing is 1 for those that are due a share of the lanes, and 0 for
-- one that stops.
CREATE TABLE IF NOT EXISTS {members} (
	spool      INT NOT NULL,
	holder     VARCHAR(255) NOT NULL,
	in_flight  MEDIUMTEXT NOT NULL,
	expires_at BIGINT NOT NULL,
	sharing    SMALLINT NOT NULL DEFAULT 1,
	PRIMARY KEY (spool, holder)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- What all processes share of a limit: of a topic, or with an empty name of the whole spool. Slot 0
-- is its rate, whose token is the time until which it is used up (microseconds since 1970). Each
-- other slot is a call that may run, and is held as a lane is: one whose holder is no member can be
-- taken. A row is changed only if its token is as it was read, and gets another one.
CREATE TABLE IF NOT EXISTS {limits} (
	spool      INT NOT NULL,
	name       VARCHAR(255) NOT NULL,
	slot       INT NOT NULL,
	holder     VARCHAR(255),
	token      BIGINT NOT NULL,
	PRIMARY KEY (spool, name, slot)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- state: 0 ready, 1 scheduled, 2 retrying. A message that goes through at the first attempt is
-- inserted and deleted, never updated. starts counts the times that a suspect was handed to a
-- handler and has not come back.
CREATE TABLE IF NOT EXISTS {messages} (
	id           BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
	spool        INT NOT NULL,
	state        SMALLINT NOT NULL,
	lane         SMALLINT NOT NULL,
	key_hash     BIGINT,
	available_at BIGINT NOT NULL,
	created_at   BIGINT NOT NULL,
	attempts     INT NOT NULL DEFAULT 0,
	starts       SMALLINT NOT NULL DEFAULT 0,
	topic        VARCHAR(255) NOT NULL,
	message_id   BLOB NOT NULL,
	ordering_key BLOB,
	payload      LONGBLOB,
	metadata     LONGBLOB NOT NULL,
	INDEX ready (spool, state, lane, id),
	INDEX due (spool, state, available_at),
	INDEX retrying (spool, state, key_hash, id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- One row a failed attempt. The subject is a stored message or an inbox's claim, as the code
-- encodes it.
CREATE TABLE IF NOT EXISTS {failures} (
	id        BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
	subject   VARBINARY(255) NOT NULL,
	attempt   INT NOT NULL,
	failed_at BIGINT NOT NULL,
	error     TEXT NOT NULL,
	process   VARCHAR(255) NOT NULL,
	INDEX subject (subject, id),
	INDEX failed_at (failed_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- origin: 0 a message of a spool, 1 a message that an inbox could not handle. cause is why the
-- message died, as a number that the code gives; 0 is unknown.
CREATE TABLE IF NOT EXISTS {dead_letters} (
	id           BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
	origin       SMALLINT NOT NULL,
	subject      VARBINARY(255) NOT NULL,
	spool        INT,
	consumer     VARCHAR(255) NOT NULL,
	topic        VARCHAR(255) NOT NULL,
	message_id   BLOB NOT NULL,
	source_topic VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
	carried_id   BLOB,
	ordering_key BLOB,
	key_hash     BIGINT,
	payload      LONGBLOB,
	metadata     LONGBLOB NOT NULL,
	created_at   BIGINT NOT NULL,
	died_at      BIGINT NOT NULL,
	attempts     INT NOT NULL,
	error        TEXT NOT NULL,
	resolved_at  BIGINT,
	resolution   TEXT,
	cause        SMALLINT NOT NULL DEFAULT 0,
	INDEX died_at (spool, died_at),
	INDEX message_id (message_id(64))
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Cleanup: one process at a time does each chore, and the next one goes on where it stopped.
CREATE TABLE IF NOT EXISTS {chores} (
	name       VARCHAR(100) NOT NULL PRIMARY KEY,
	holder     VARCHAR(255) NOT NULL DEFAULT '',
	expires_at BIGINT NOT NULL DEFAULT 0,
	progress   BLOB
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- What an inbox has handled. The key is 16 bytes for consumer and topic and then the message id,
-- so the claims of time-ordered ids lie side by side. Narrow on purpose: it is kept for the
-- whole retention.
CREATE TABLE IF NOT EXISTS {claims} (
	claim_key  VARBINARY(255) NOT NULL PRIMARY KEY,
	claimed_at BIGINT NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Tables written by watermill-sql from which messages are taken over: everything up to here has
-- been.
CREATE TABLE IF NOT EXISTS {sources} (
	name           VARCHAR(255) NOT NULL PRIMARY KEY,
	transaction_id BIGINT NOT NULL,
	row_offset     BIGINT NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Keys of which nothing is handled until an operator says so.
CREATE TABLE IF NOT EXISTS {pauses} (
	id           BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
	spool        INT NOT NULL,
	key_hash     BIGINT NOT NULL,
	ordering_key BLOB NOT NULL,
	paused_at    BIGINT NOT NULL,
	paused_by    VARCHAR(255) NOT NULL DEFAULT '',
	reason       VARCHAR(255) NOT NULL DEFAULT '',
	INDEX by_key (spool, key_hash)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Messages that were done, of spools that keep them. The id is that of the message. It names no
-- message by itself: after a failover, or with a counter that was set back, the database gives
-- out ids again. omitted is how many bytes of payload and metadata were too large to be kept.
-- took is the time from the call of its handler or publisher until it was settled, in
-- microseconds, and 0 where that is not known. process is who has handled the message.
CREATE TABLE IF NOT EXISTS {history} (
	id           BIGINT NOT NULL,
	spool        INT NOT NULL,
	topic        VARCHAR(255) NOT NULL,
	message_id   BLOB NOT NULL,
	source_topic VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
	carried_id   BLOB,
	ordering_key BLOB,
	payload      LONGBLOB,
	metadata     LONGBLOB NOT NULL,
	created_at   BIGINT NOT NULL,
	done_at      BIGINT NOT NULL,
	attempts     INT NOT NULL,
	omitted      BIGINT NOT NULL DEFAULT 0,
	took         BIGINT NOT NULL DEFAULT 0,
	process      VARCHAR(255),
	PRIMARY KEY (id, created_at),
	INDEX done_at (spool, done_at),
	INDEX message_id (message_id(64))
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Whose tables these are, such as those of production: a copy of the database has the name with
-- it. At most one row.
CREATE TABLE IF NOT EXISTS {deployment} (
	id   SMALLINT NOT NULL PRIMARY KEY CHECK (id = 1),
	name VARCHAR(255) NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- A transaction that stores messages holds one of these rows, by a shared lock, from before its
-- messages get their ids until it ends. Once each row has been seen without a lock, no
-- transaction of before is left.
CREATE TABLE IF NOT EXISTS {writers} (
	id SMALLINT NOT NULL PRIMARY KEY
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

INSERT IGNORE INTO {writers} (id)
WITH RECURSIVE n (id) AS (SELECT 0 UNION ALL SELECT id + 1 FROM n WHERE id < 63)
SELECT id FROM n;

-- What tells these tables from those of another database: drawn by lot. A copy of the database
-- has it too.
CREATE TABLE IF NOT EXISTS {identity} (
	id       SMALLINT NOT NULL PRIMARY KEY CHECK (id = 1),
	identity VARCHAR(64) NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
INSERT IGNORE INTO {identity} VALUES (1, UUID());

-- One row for each action of an operator, written in the transaction of its effect. An action on
-- many things has one row, whose number grows with each of its transactions, which find it by
-- its operation.
CREATE TABLE IF NOT EXISTS {audit} (
	id        BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
	operation VARCHAR(64) NOT NULL UNIQUE,
	acted_at  BIGINT NOT NULL,
	actor     VARCHAR(255) NOT NULL,
	action    VARCHAR(64) NOT NULL,
	target    VARCHAR(255) NOT NULL,
	subject   TEXT NOT NULL,
	filter    TEXT NOT NULL,
	affected  BIGINT NOT NULL,
	note      TEXT NOT NULL,
	INDEX acted_at (acted_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Topics of which nothing is published until an operator says so, or until the end of the pause.
CREATE TABLE IF NOT EXISTS {topic_pauses} (
	spool     INT NOT NULL,
	topic     VARCHAR(255) NOT NULL,
	paused_at BIGINT NOT NULL,
	paused_by VARCHAR(255) NOT NULL DEFAULT '',
	reason    VARCHAR(255) NOT NULL DEFAULT '',
	ends_at   BIGINT NOT NULL DEFAULT 9223372036854775807,
	PRIMARY KEY (spool, topic)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- What each process did in a minute, of one outbox or queue: package minutes writes it. The minute
-- counts from 1970, by the clock of the process; times are in microseconds. starts is 1 in the
-- first row of a process.
CREATE TABLE IF NOT EXISTS {minutes} (
	minute   BIGINT NOT NULL,
	arrived  BIGINT NOT NULL,
	done     BIGINT NOT NULL,
	failed   BIGINT NOT NULL,
	dead     BIGINT NOT NULL,
	wait_p50 BIGINT NOT NULL,
	wait_p95 BIGINT NOT NULL,
	call_p50 BIGINT NOT NULL,
	call_p95 BIGINT NOT NULL,
	starts   SMALLINT NOT NULL,
	kind     VARCHAR(16) NOT NULL,
	name     VARCHAR(255) NOT NULL,
	process  VARCHAR(255) NOT NULL,
	PRIMARY KEY (kind, name, minute, process),
	KEY {prefix}minutes_minute (minute)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Which consumers have handled which message: one row for each receipt that is awaited or has
-- come. The key is that of the message, and then 16 bytes for topic and consumer, so the rows of
-- a message lie side by side. State: 0 awaited, 1 missing, 2 received. A receipt that was not
-- awaited has no sent_at, and is due when it comes. The index finds what is overdue, what is
-- missing, and what is too old.
CREATE TABLE IF NOT EXISTS {receipts} (
	receipt_key VARBINARY(64) NOT NULL PRIMARY KEY,
	state       SMALLINT NOT NULL,
	due_at      BIGINT NOT NULL,
	sent_at     BIGINT,
	handled_at  BIGINT,
	received_at BIGINT,
	topic       VARCHAR(255) NOT NULL,
	message_id  BLOB NOT NULL,
	consumer    VARCHAR(255) NOT NULL,
	INDEX due (state, due_at, receipt_key)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The message that was stored last under a unique key. It waits for as long as its row exists,
-- so nothing is written here when it is done. The digest is a hash of spool, topic and key.
CREATE TABLE IF NOT EXISTS {unique_keys} (
	digest     BINARY(32) NOT NULL PRIMARY KEY,
	spool      INT NOT NULL,
	id         BIGINT NOT NULL,
	created_at BIGINT NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
