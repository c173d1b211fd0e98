package deferred

import "github.com/postbox-go/watermill-postbox/benchmarks/accounts"

// words are the tables and statements of one database: the business of all handlers, and a queue as
// it is made by hand.
type words struct {
	accounts.Words
	createQueue, insertQueue string
}

var (
	onPostgres = words{
		Words: accounts.OnPostgres(),
		createQueue: `
CREATE TABLE queue (
	id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	message_id text NOT NULL,
	metadata   bytea NOT NULL,
	payload    bytea NOT NULL
)`,
		insertQueue: `INSERT INTO queue (message_id, metadata, payload) VALUES ($1, $2, $3)`,
	}
	onMariaDB = words{
		Words: accounts.OnMariaDB(),
		createQueue: `
CREATE TABLE queue (
	id         bigint AUTO_INCREMENT PRIMARY KEY,
	message_id varchar(255) NOT NULL,
	metadata   blob NOT NULL,
	payload    blob NOT NULL
)`,
		insertQueue: `INSERT INTO queue (message_id, metadata, payload) VALUES (?, ?, ?)`,
	}
)

// insertQueueOnce claims many messages and stores those that are new, in one statement of
// PostgreSQL.
const insertQueueOnce = `
WITH r AS (
	SELECT message_id, metadata, payload FROM unnest($2::text[], $3::bytea[], $4::bytea[]) AS r(message_id, metadata, payload)),
c AS (
	INSERT INTO processed (consumer, message_id) SELECT $1, message_id FROM r ON CONFLICT DO NOTHING RETURNING message_id)
INSERT INTO queue (message_id, metadata, payload)
SELECT r.message_id, r.metadata, r.payload FROM r JOIN c ON c.message_id = r.message_id`

// insertOwnOnce does the same with the claims and messages of Postbox.
const insertOwnOnce = `
WITH r AS (
	SELECT * FROM unnest($2::bytea[], $3::smallint[], $4::bigint[], $5::bytea[], $6::bytea[], $7::bytea[], $8::bytea[])
		AS r(claim_key, lane, key_hash, message_id, ordering_key, payload, metadata)),
c AS (
	INSERT INTO postbox_claims (claim_key, claimed_at) SELECT claim_key, (date_part('epoch', statement_timestamp()) * 1000000)::bigint FROM r
	ON CONFLICT DO NOTHING RETURNING claim_key)
INSERT INTO postbox_messages (spool, lane, state, key_hash, available_at, created_at, topic, message_id, ordering_key, payload, metadata)
SELECT 1, r.lane, 0, r.key_hash, 0, (date_part('epoch', statement_timestamp()) * 1000000)::bigint, $1, r.message_id, r.ordering_key, r.payload, r.metadata
FROM r JOIN c ON c.claim_key = r.claim_key`

// The same as insertQueueOnce on MariaDB, with the values of as many messages as there are.
const (
	claimMany      = `INSERT IGNORE INTO processed (consumer, message_id) VALUES `
	claimManyEnd   = ` RETURNING message_id`
	claimManyEach  = `(?, ?)`
	insertMany     = `INSERT INTO queue (message_id, metadata, payload) VALUES `
	insertManyEach = `(?, ?, ?)`
)

// The claims and messages of Postbox on MariaDB. Each reads the clock once.
const (
	clockOwn     = `TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))`
	dropIndexes  = `ALTER TABLE postbox_messages DROP INDEX ready, DROP INDEX due, DROP INDEX retrying`
	claimOwn     = `INSERT IGNORE INTO postbox_claims (claim_key, claimed_at) VALUES `
	claimOwnEach = `(?, ` + clockOwn + `)`
	insertOwn    = `
INSERT INTO postbox_messages (spool, lane, state, key_hash, available_at, created_at, topic, message_id, ordering_key, payload, metadata, attempts)
VALUES `
	insertOwnRow   = `(1, ?, 0, ?, 0, ` + clockOwn + `, ?, ?, ?, ?, ?, `
	insertOwnEach  = insertOwnRow + `0)`
	insertOwnFirst = insertOwnRow + `COALESCE((SELECT 0 FROM postbox_writers w WHERE w.id = (` + clockOwn + ` DIV 25000) MOD 64 LOCK IN SHARE MODE), 0))`
)
