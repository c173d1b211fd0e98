-- A transaction that stores messages holds one of these rows, by a shared lock, from before its messages get their ids until it
-- ends. Once each row has been seen without a lock, no transaction of before is left.
CREATE TABLE IF NOT EXISTS {writers} (
	id SMALLINT NOT NULL PRIMARY KEY
) ENGINE = InnoDB;

INSERT IGNORE INTO {writers} (id)
WITH RECURSIVE n (id) AS (SELECT 0 UNION ALL SELECT id + 1 FROM n WHERE id < 63)
SELECT id FROM n;
