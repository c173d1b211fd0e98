-- Whose tables these are, such as those of production: a copy of the database has the name with it. At most one row.
CREATE TABLE IF NOT EXISTS {deployment} (
	id   SMALLINT NOT NULL PRIMARY KEY CHECK (id = 1),
	name VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL
) ENGINE = InnoDB;
