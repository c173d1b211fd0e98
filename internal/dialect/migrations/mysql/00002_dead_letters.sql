-- One row a failed attempt. The subject is a stored message or an inbox's claim, as the code encodes it.
CREATE TABLE IF NOT EXISTS {failures} (
	id        BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
	subject   VARBINARY(255) NOT NULL,
	attempt   INT NOT NULL,
	failed_at BIGINT NOT NULL,
	error     TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
	process   VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
	INDEX subject (subject, id),
	INDEX failed_at (failed_at)
) ENGINE = InnoDB;

-- origin: 0 a message of a spool, 1 a message that an inbox could not handle.
CREATE TABLE IF NOT EXISTS {dead_letters} (
	id           BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
	origin       SMALLINT NOT NULL,
	subject      VARBINARY(255) NOT NULL,
	spool        INT,
	consumer     VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
	topic        VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
	message_id   BLOB NOT NULL,
	ordering_key BLOB,
	key_hash     BIGINT,
	payload      LONGBLOB NOT NULL,
	metadata     LONGBLOB NOT NULL,
	created_at   BIGINT NOT NULL,
	died_at      BIGINT NOT NULL,
	attempts     INT NOT NULL,
	error        TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
	resolved_at  BIGINT,
	resolution   TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
	INDEX died_at (spool, died_at)
) ENGINE = InnoDB;

-- Cleanup: one process at a time does each chore, and the next one goes on where it stopped.
CREATE TABLE IF NOT EXISTS {chores} (
	name       VARCHAR(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL PRIMARY KEY,
	holder     VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '',
	expires_at BIGINT NOT NULL DEFAULT 0,
	progress   BLOB
) ENGINE = InnoDB;
