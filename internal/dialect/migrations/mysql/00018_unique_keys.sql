-- +goose Up

-- The message that was stored last under a unique key. It waits for as long as its row exists, so nothing is written here when it is
-- done. The digest is a hash of spool, topic and key.
CREATE TABLE IF NOT EXISTS {unique_keys} (
	digest     BINARY(32) NOT NULL PRIMARY KEY,
	spool      INT NOT NULL,
	id         BIGINT NOT NULL,
	created_at BIGINT NOT NULL
) ENGINE = InnoDB;
