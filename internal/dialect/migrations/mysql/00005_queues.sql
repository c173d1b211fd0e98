-- Keys of which nothing is handled until an operator says so.
CREATE TABLE IF NOT EXISTS {pauses} (
	spool        INT NOT NULL,
	key_hash     BIGINT NOT NULL,
	ordering_key BLOB NOT NULL,
	paused_at    BIGINT NOT NULL,
	PRIMARY KEY (spool, key_hash)
) ENGINE = InnoDB;

-- Messages that were done, of spools that keep them. The id is that of the message.
CREATE TABLE IF NOT EXISTS {history} (
	id           BIGINT NOT NULL PRIMARY KEY,
	spool        INT NOT NULL,
	topic        VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
	message_id   BLOB NOT NULL,
	ordering_key BLOB,
	payload      LONGBLOB NOT NULL,
	metadata     LONGBLOB NOT NULL,
	created_at   BIGINT NOT NULL,
	done_at      BIGINT NOT NULL,
	attempts     INT NOT NULL,
	INDEX done_at (spool, done_at)
) ENGINE = InnoDB;
