package inbox

// The orders that producers insert.
const (
	createOrders = `CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, customer bigint NOT NULL, amount bigint NOT NULL)`
	insertOrder  = `INSERT INTO orders (customer, amount) VALUES ($1, $2)`
)

// What is usually written by hand.
const (
	createOutbox = `
CREATE TABLE outbox (
	id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	topic      text NOT NULL,
	message_id text NOT NULL,
	metadata   bytea NOT NULL,
	payload    bytea NOT NULL
)`
	insertOutbox = `INSERT INTO outbox (topic, message_id, metadata, payload) VALUES ($1, $2, $3, $4)`

	insertOurRow = `
INSERT INTO postbox_messages (spool, lane, state, key_hash, available_at, created_at, topic, message_id, ordering_key, payload, metadata)
VALUES (1, $1, 0, $2, 0, (date_part('epoch', statement_timestamp()) * 1000000)::bigint, $3, $4, $5, $6, $7)`
)
