-- Tables written by watermill-sql from which messages are taken over: everything up to here has been.
CREATE TABLE IF NOT EXISTS {sources} (
	name           VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL PRIMARY KEY,
	transaction_id BIGINT NOT NULL,
	row_offset     BIGINT NOT NULL
) ENGINE = InnoDB;
