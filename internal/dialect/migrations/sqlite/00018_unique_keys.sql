-- +goose Up

-- The message that was stored last under a unique key. It waits for as long as its row exists, so nothing is written here when it is
-- done. The digest is a hash of spool, topic and key.
CREATE TABLE {unique_keys} (
	digest     BLOB NOT NULL PRIMARY KEY,
	spool      INTEGER NOT NULL,
	id         INTEGER NOT NULL,
	created_at INTEGER NOT NULL
) WITHOUT ROWID;
