-- +goose Up

-- What tells these tables from those of another database: drawn by lot. A copy of the database has it too.
CREATE TABLE IF NOT EXISTS {identity} (
	id       SMALLINT NOT NULL PRIMARY KEY CHECK (id = 1),
	identity VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL
) ENGINE = InnoDB;
INSERT IGNORE INTO {identity} VALUES (1, UUID());
