package relay

// The tables and statements of what is done by hand, and of the stand-in for oagudo/outbox.
const (
	floorTable = `
CREATE TABLE outbox (
	id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	topic      text NOT NULL,
	message_id text NOT NULL,
	metadata   bytea NOT NULL,
	payload    bytea NOT NULL
)`
	floorInsert = `
INSERT INTO outbox (topic, message_id, metadata, payload)
SELECT $1, * FROM unnest($2::text[], $3::bytea[], $4::bytea[])`
	floorInsertOne = `INSERT INTO outbox (topic, message_id, metadata, payload) VALUES ($1, $2, $3, $4)`
	floorRead      = `SELECT id, topic, message_id, metadata, payload FROM outbox WHERE id > $1 ORDER BY id LIMIT $2`
	floorDelete    = `DELETE FROM outbox WHERE id = ANY($1)`

	// The table of Postbox, read and emptied as simply as that by hand.
	ourTableRead = `
SELECT id, topic, message_id, metadata, payload FROM ONLY postbox_messages
WHERE spool = 1 AND state = 0 AND lane = 0 AND id > $1 ORDER BY id LIMIT $2`
	ourTableDelete = `DELETE FROM ONLY postbox_messages WHERE spool = 1 AND state = 0 AND lane = 0 AND id = ANY($1)`
	oneLane        = `UPDATE postbox_messages SET lane = 0`
	repackOurs     = `VACUUM FULL postbox_messages`
	analyzeOurs    = `ANALYZE postbox_messages` // without statistics, that DELETE reads the whole lane each time
	holdLane       = `INSERT INTO postbox_lanes (spool, lane, holder, token) VALUES (1, 0, 'by hand', $1)`

	// What reads the log by hand.
	slotPublication  = `DROP PUBLICATION IF EXISTS by_hand; CREATE PUBLICATION by_hand FOR TABLE outbox WITH (publish = 'insert')`
	createSlot       = `CREATE_REPLICATION_SLOT by_hand TEMPORARY LOGICAL pgoutput NOEXPORT_SNAPSHOT`
	startReplication = `START_REPLICATION SLOT by_hand LOGICAL 0/0 (proto_version '1', publication_names 'by_hand', binary 'true')`
	countStreaming   = `SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'`

	mariaDBTable = `
CREATE TABLE outbox (
	id         bigint AUTO_INCREMENT PRIMARY KEY,
	topic      varchar(255) NOT NULL,
	message_id varchar(255) NOT NULL,
	metadata   blob NOT NULL,
	payload    blob NOT NULL
)`
	mariaDBInsertOne = `INSERT INTO outbox (topic, message_id, metadata, payload) VALUES (?, ?, ?, ?)`
	mariaDBInsert    = `INSERT INTO outbox (topic, message_id, metadata, payload) VALUES `
	mariaDBRead      = `SELECT id, topic, message_id, metadata, payload FROM outbox WHERE id > ? ORDER BY id LIMIT ?`
	mariaDBDelete    = `DELETE FROM outbox WHERE id IN (`

	// Another table, to which a transaction writes that stays open.
	createUnrelated = `CREATE TABLE unrelated (id bigint)`
	insertUnrelated = `INSERT INTO unrelated VALUES (1)`

	// That library lets its users make the table; this is the one that its documentation proposes.
	standInTable = `
CREATE TABLE outbox (
	id              uuid PRIMARY KEY,
	created_at      timestamptz NOT NULL,
	scheduled_at    timestamptz NOT NULL,
	metadata        bytea,
	payload         bytea NOT NULL,
	times_attempted integer NOT NULL
)`
	standInIndexes = `
CREATE INDEX outbox_created_at ON outbox (created_at);
CREATE INDEX outbox_scheduled_at ON outbox (scheduled_at)`
	standInInsert = `
INSERT INTO outbox (id, created_at, scheduled_at, metadata, payload, times_attempted)
SELECT id, now() + n * interval '1 microsecond', now(), metadata, payload, 0
FROM unnest($1::uuid[], $2::bytea[], $3::bytea[]) WITH ORDINALITY AS r(id, metadata, payload, n)`
	standInRead = `
SELECT id, payload, created_at, scheduled_at, metadata, times_attempted
FROM outbox WHERE scheduled_at <= now() ORDER BY created_at LIMIT $1`
	standInDelete = `DELETE FROM outbox WHERE id IN (`
)
