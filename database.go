package postbox

import (
	"database/sql"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// Database says in which database Postbox works, and where its tables are there. Make one at the start of the program, and give it to [Migrate] and to each
// constructor, so that all of them mean the same tables. Several modules can have tables of their own in one database: give each a Schema or a Prefix.
//
// It is a value: a copy that a constructor has got does not change any more. Postbox never closes DB.
type Database struct {
	// DB is the database. docs/databases.md says how to open it. Required.
	DB *sql.DB
	// Dialect is the kind of database. Required.
	Dialect Dialect
	// Schema is the PostgreSQL schema of the tables, which must exist, with its capitals as they are: letters, digits and underscores, at most 32 of them. Defaults to the connection's search path.
	// MySQL and SQLite have no schemas: leave it empty there.
	Schema string
	// Prefix starts the name of each table: letters, digits and underscores, at most 32 of them.
	// Defaults to "postbox_".
	Prefix string
	// Deployment names the environment that the tables belong to, such as "production", in at most 255 bytes. [Migrate] stores it
	// with the tables, and from then on whatever publishes or handles stored messages fails with [ErrDeployment] at its start
	// unless it is configured with the same name: a forwarder, a queue, a batch. So a copy of production's database that is opened in a
	// staging environment, where the name is "staging", publishes nothing. Empty by default: tables without a name are open to
	// processes without one.
	Deployment string
	// DisablePreparedStatements is for poolers such as PgBouncer in transaction mode: see docs/poolers.md. Without prepared
	// statements lib/pq needs a second round trip unless its option binary_parameters=yes is set.
	DisablePreparedStatements bool
}

// statements checks all but DB, and returns the statements for the tables.
func (d Database) statements() (*dialect.Statements, error) {
	return dialect.For(dialect.Kind(d.Dialect), d.Schema, d.Prefix, d.Deployment)
}
