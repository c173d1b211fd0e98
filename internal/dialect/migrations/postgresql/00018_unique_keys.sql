-- +goose Up

-- The message that was stored last under a unique key. It waits for as long as its row exists, so nothing is written here when it is
-- done. The digest is a hash of spool, topic and key.
CREATE TABLE {unique_keys} (
	id         bigint NOT NULL,
	created_at bigint NOT NULL,
	spool      integer NOT NULL,
	lane       smallint NOT NULL,
	digest     bytea PRIMARY KEY
) WITH (fillfactor = 70);
