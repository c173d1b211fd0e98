-- MySQL commits each of these statements by itself: IF NOT EXISTS lets a migration that was cut short run again.

-- A spool is a durable queue of messages: an outbox, or a queue of an inbox. Its number of lanes is part of the
-- data, since it decides in which lane a key lives. What operators say of it stands here too, and its version grows
-- with every change, so that processes notice. history is for how long (in microseconds) its drainers keep messages that
-- are done, so that whoever cleans up knows.
CREATE TABLE IF NOT EXISTS {spools} (
	id    INT NOT NULL AUTO_INCREMENT PRIMARY KEY,
	name  VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL UNIQUE,
	lanes INT NOT NULL,
	version BIGINT NOT NULL DEFAULT 0,
	paused_at BIGINT,
	settings VARCHAR(4096) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '',
	history BIGINT NOT NULL DEFAULT 0
) ENGINE = InnoDB;

-- Who drains a lane, until when (microseconds since 1970, by this database's clock), under which fencing token. A
-- lane is suspect while one of its messages may have brought down the process that held it.
CREATE TABLE IF NOT EXISTS {lanes} (
	spool      INT NOT NULL,
	lane       SMALLINT NOT NULL,
	holder     VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
	token      BIGINT NOT NULL DEFAULT 0,
	expires_at BIGINT NOT NULL DEFAULT 0,
	suspect    SMALLINT NOT NULL DEFAULT 0,
	PRIMARY KEY (spool, lane)
) ENGINE = InnoDB;

-- The processes that drain a spool, so that each can tell its fair share of the lanes.
CREATE TABLE IF NOT EXISTS {members} (
	spool      INT NOT NULL,
	holder     VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
	in_flight  MEDIUMTEXT NOT NULL,
	expires_at BIGINT NOT NULL,
	PRIMARY KEY (spool, holder)
) ENGINE = InnoDB;

-- state: 0 ready, 1 scheduled, 2 retrying. A message that goes through at the first attempt is inserted and
-- deleted, never updated. starts counts the times that a suspect was handed to a handler and has not come back.
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
	topic        VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
	message_id   BLOB NOT NULL,
	ordering_key BLOB,
	payload      LONGBLOB NOT NULL,
	metadata     LONGBLOB NOT NULL,
	INDEX ready (spool, state, lane, id),
	INDEX due (spool, state, available_at),
	INDEX retrying (spool, state, key_hash, id)
) ENGINE = InnoDB;
