package deferred

// The tables and statements of what is done by hand, and the business of all handlers: one update of an account.
const (
	createAccounts = `
CREATE TABLE accounts (id bigint PRIMARY KEY, balance bigint NOT NULL) WITH (fillfactor = 50);
INSERT INTO accounts SELECT n, 0 FROM generate_series(1, 1000) AS n`
	updateAccount = `UPDATE accounts SET balance = balance + 1 WHERE id = $1`

	createProcessed = `CREATE TABLE processed (consumer text, message_id text, PRIMARY KEY (consumer, message_id))`
	claim           = `INSERT INTO processed (consumer, message_id) VALUES ($1, $2) ON CONFLICT DO NOTHING`

	createQueue = `
CREATE TABLE queue (
	id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	message_id text NOT NULL,
	metadata   bytea NOT NULL,
	payload    bytea NOT NULL
)`
	insertQueue     = `INSERT INTO queue (message_id, metadata, payload) VALUES ($1, $2, $3)`
	insertQueueOnce = `
WITH r AS (
	SELECT message_id, metadata, payload FROM unnest($2::text[], $3::bytea[], $4::bytea[]) AS r(message_id, metadata, payload)),
c AS (
	INSERT INTO processed (consumer, message_id) SELECT $1, message_id FROM r ON CONFLICT DO NOTHING RETURNING message_id)
INSERT INTO queue (message_id, metadata, payload)
SELECT r.message_id, r.metadata, r.payload FROM r JOIN c ON c.message_id = r.message_id`
)
