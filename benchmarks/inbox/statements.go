package inbox

import (
	"context"
	"database/sql"

	postbox "github.com/postbox-go/watermill-postbox"
)

// The business of all contenders: accounts whose balance changes, and orders that are inserted. See also [words].
const (
	accounts     = 1000
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
VALUES (1, $1, 0, $2, (date_part('epoch', clock_timestamp()) * 1000000)::bigint, (date_part('epoch', clock_timestamp()) * 1000000)::bigint, $3, $4, $5, $6, $7)`
)

// words are the statements of one database.
type words struct {
	dialect postbox.Dialect
	// createAccounts makes the business table, which updateAccount changes.
	createAccounts []string
	updateAccount  string
	// createProcessed and claim are what is usually written by hand.
	createProcessed, claim string
}

var (
	onPostgres = words{
		dialect: postbox.PostgreSQL,
		createAccounts: []string{
			`CREATE TABLE accounts (id bigint PRIMARY KEY, balance bigint NOT NULL) WITH (fillfactor = 50)`,
			`INSERT INTO accounts SELECT n, 0 FROM generate_series(1, 1000) AS n`,
		},
		updateAccount:   `UPDATE accounts SET balance = balance + 1 WHERE id = $1`,
		createProcessed: `CREATE TABLE processed (consumer text, message_id text, PRIMARY KEY (consumer, message_id))`,
		claim:           `INSERT INTO processed (consumer, message_id) VALUES ($1, $2) ON CONFLICT DO NOTHING`,
	}
	onMariaDB = words{
		dialect: postbox.MySQL,
		createAccounts: []string{
			`CREATE TABLE accounts (balance bigint NOT NULL, id bigint PRIMARY KEY)`,
			`INSERT INTO accounts (id, balance) SELECT seq, 0 FROM seq_1_to_1000`,
		},
		updateAccount: `UPDATE accounts SET balance = balance + 1 WHERE id = ?`,
		createProcessed: `
CREATE TABLE processed (
	consumer   varchar(255) CHARACTER SET ascii COLLATE ascii_bin,
	message_id varchar(255) CHARACTER SET ascii COLLATE ascii_bin,
	PRIMARY KEY (consumer, message_id)
)`,
		claim: `INSERT IGNORE INTO processed (consumer, message_id) VALUES (?, ?)`,
	}
)

// create runs what makes the tables of a contender.
func create(ctx context.Context, db *sql.DB, statements ...string) error {
	for _, statement := range statements {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}
