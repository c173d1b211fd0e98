package postbox

import (
	"database/sql"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/metrics"
)

// Database describes the database in which Postbox works, and the names of its tables there. Make
// one when the program starts, and give it to [Migrate] and to each constructor, so that all of
// them use the same tables. Several modules can each have their own tables in one database: give
// each module a Schema or a Prefix.
//
// It is a value: later changes do not affect a constructor that was called before. Postbox never
// closes DB.
type Database struct {
	// DB is the database. docs/databases.md says how to open it. Required.
	DB *sql.DB
	// Dialect is the kind of database. Required.
	Dialect Dialect
	// Schema is the PostgreSQL schema of the tables. It must exist and is written with its
	// capitals: letters, digits and underscores, at most 32 of them. Defaults to the connection's
	// search path. MySQL and SQLite have no schemas: leave it empty there.
	Schema string
	// Prefix starts the name of each table: letters, digits and underscores, at most 32 of them.
	// Defaults to "postbox_".
	Prefix string
	// Deployment names the environment that the tables belong to, such as "production", in at most
	// 255 bytes. [Migrate] stores it with the tables. From then on a forwarder, a queue or a batch
	// that is configured with another name, or with none, fails with [ErrDeployment] at its start.
	// So a copy of production's database that is opened in a staging environment, where the name is
	// "staging", publishes nothing. Empty by default: tables without a name are open to processes
	// without a name.
	Deployment string
	// AnyServer leaves out the check that the server is the product that Dialect names, in a
	// version that Postbox supports. A server that only speaks the same protocol may lose the order
	// of messages, or messages: see docs/databases.md. False by default.
	AnyServer bool
	// DisablePreparedStatements is for poolers such as PgBouncer in transaction mode: see
	// docs/poolers.md. Without prepared statements lib/pq needs a second round trip unless its
	// option binary_parameters=yes is set.
	DisablePreparedStatements bool
	// Metrics gets the measurements of publishers, forwarders, stores and queues that are made with
	// this description: see package metrics. Defaults to none.
	Metrics metrics.Recorder
}

// statements checks all but DB, and returns the statements for the tables.
func (d Database) statements() (*dialect.Statements, error) {
	statements, err := dialect.For(dialect.Kind(d.Dialect), d.Schema, d.Prefix, d.Deployment)
	if statements != nil {
		statements.AnyServer = d.AnyServer
	}
	return statements, err
}
