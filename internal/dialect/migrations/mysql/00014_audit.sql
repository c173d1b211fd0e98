-- +goose Up

-- One row for each action of an operator, written in the transaction of its effect. An action on many things has one row, whose number
-- grows with each of its transactions, which find it by its operation.
CREATE TABLE IF NOT EXISTS {audit} (
	id        BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
	operation VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL UNIQUE,
	acted_at  BIGINT NOT NULL,
	actor     VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
	action    VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
	target    VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
	subject   TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
	filter    TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
	affected  BIGINT NOT NULL,
	note      TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
	INDEX acted_at (acted_at)
) ENGINE = InnoDB;

-- Why the message died, as a number that the code gives; 0 is unknown, as for all older letters.
--
-- A migration that is cut short runs again from its start, and MySQL, unlike MariaDB, cannot add a column only if it is not there yet.
SET @postbox_add_cause = (SELECT CASE WHEN COUNT(*) = 0
    THEN 'ALTER TABLE {dead_letters} ADD COLUMN cause SMALLINT NOT NULL DEFAULT 0'
    ELSE 'DO 0' END
  FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = '{dead_letters}' AND COLUMN_NAME = 'cause');
PREPARE postbox_add_cause FROM @postbox_add_cause;
EXECUTE postbox_add_cause;
DEALLOCATE PREPARE postbox_add_cause;
