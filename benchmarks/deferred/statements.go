package deferred

import (
	"context"
	"database/sql"

	postbox "github.com/postbox-go/watermill-postbox"
)

// words are the tables and statements of one database: the business of all handlers, which is one update of an account, and what is done by
// hand.
type words struct {
	dialect                  postbox.Dialect
	createAccounts           []string
	updateAccount            string
	createProcessed, claim   string
	createQueue, insertQueue string
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
		dialect: postbox.MySQL,
		createAccounts: []string{
			`CREATE TABLE accounts (id bigint PRIMARY KEY, balance bigint NOT NULL)`,
			`INSERT INTO accounts SELECT seq, 0 FROM seq_1_to_1000`,
		},
		updateAccount: `UPDATE accounts SET balance = balance + 1 WHERE id = ?`,
		createProcessed: `
CREATE TABLE processed (
	consumer   varchar(255) CHARACTER SET ascii COLLATE ascii_bin,
	message_id varchar(255) CHARACTER SET ascii COLLATE ascii_bin,
	PRIMARY KEY (consumer, message_id)
)`,
		claim: `INSERT IGNORE INTO processed (consumer, message_id) VALUES (?, ?)`,
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

// insertQueueOnce claims many messages and stores those that are new, in one statement of PostgreSQL.
const insertQueueOnce = `
WITH r AS (
	SELECT message_id, metadata, payload FROM unnest($2::text[], $3::bytea[], $4::bytea[]) AS r(message_id, metadata, payload)),
c AS (
	INSERT INTO processed (consumer, message_id) SELECT $1, message_id FROM r ON CONFLICT DO NOTHING RETURNING message_id)
INSERT INTO queue (message_id, metadata, payload)
SELECT r.message_id, r.metadata, r.payload FROM r JOIN c ON c.message_id = r.message_id`

// The same on MariaDB, with the values of as many messages as there are.
const (
	claimMany      = `INSERT IGNORE INTO processed (consumer, message_id) VALUES `
	claimManyEnd   = ` RETURNING message_id`
	claimManyEach  = `(?, ?)`
	insertMany     = `INSERT INTO queue (message_id, metadata, payload) VALUES `
	insertManyEach = `(?, ?, ?)`
)

// create runs statements that make tables.
func create(ctx context.Context, db *sql.DB, statements ...string) error {
	for _, statement := range statements {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}
