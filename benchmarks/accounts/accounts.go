// Package accounts is the business of the contenders that handle messages: each message changes the
// balance of an account. It also has what is usually written by hand so that a message is handled
// once.
package accounts

import (
	"context"
	"database/sql"

	postbox "github.com/postbox-go/watermill-postbox"
)

// Number is how many accounts there are, with the ids from 1 on.
const Number = 1000

// Words are the statements of one database.
type Words struct {
	Dialect postbox.Dialect
	// CreateAccounts makes the business table, of which UpdateAccount changes a row.
	CreateAccounts []string
	UpdateAccount  string
	// CreateProcessed makes the table in which Claim notes a consumer and the id of a message.
	CreateProcessed, Claim string
}

// OnPostgres returns the words of PostgreSQL.
func OnPostgres() Words {
	return Words{
		Dialect: postbox.PostgreSQL,
		CreateAccounts: []string{
			`CREATE TABLE accounts (id bigint PRIMARY KEY, balance bigint NOT NULL) WITH (fillfactor = 50)`,
			`INSERT INTO accounts SELECT n, 0 FROM generate_series(1, 1000) AS n`,
		},
		UpdateAccount:   `UPDATE accounts SET balance = balance + 1 WHERE id = $1`,
		CreateProcessed: `CREATE TABLE processed (consumer text, message_id text, PRIMARY KEY (consumer, message_id))`,
		Claim:           `INSERT INTO processed (consumer, message_id) VALUES ($1, $2) ON CONFLICT DO NOTHING`,
	}
}

// OnMariaDB returns the words of MariaDB.
func OnMariaDB() Words {
	return Words{
		Dialect: postbox.MySQL,
		CreateAccounts: []string{
			`CREATE TABLE accounts (id bigint PRIMARY KEY, balance bigint NOT NULL)`,
			`INSERT INTO accounts SELECT seq, 0 FROM seq_1_to_1000`,
		},
		UpdateAccount: `UPDATE accounts SET balance = balance + 1 WHERE id = ?`,
		CreateProcessed: `
CREATE TABLE processed (
	consumer   varchar(255) CHARACTER SET ascii COLLATE ascii_bin,
	message_id varchar(255) CHARACTER SET ascii COLLATE ascii_bin,
	PRIMARY KEY (consumer, message_id)
)`,
		Claim: `INSERT IGNORE INTO processed (consumer, message_id) VALUES (?, ?)`,
	}
}

// Create runs what makes the tables of a contender.
func Create(ctx context.Context, db *sql.DB, statements ...string) error {
	for _, statement := range statements {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}
