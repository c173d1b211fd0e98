package postbox

import (
	"errors"
	"fmt"
)

// Dialect names the kind of database that Postbox keeps its tables in.
// It decides the SQL text and nothing else: the driver is chosen by the code that opens the *sql.DB.
type Dialect string

const (
	// PostgreSQL is version 13 or later, through lib/pq or pgx/v5/stdlib.
	PostgreSQL Dialect = "postgresql"
	// MySQL is MySQL 8 or MariaDB 10.6 or later, through go-sql-driver/mysql.
	MySQL Dialect = "mysql"
	// SQLite is version 3.43 or later, through modernc.org/sqlite. Open it with
	// _pragma=busy_timeout(…), _pragma=journal_mode(WAL), _txlock=immediate and SetMaxOpenConns(1):
	// SQLite has one writer, and waiting in the pool is cheaper than waiting for its lock. [Migrate], forwarders, queues and stores refuse a file that is opened without
	// busy_timeout or _txlock=immediate: transactions on it fail as soon as two meet. Transactions that
	// are made at the same time can share commits: see forwarder.GroupCommit.
	SQLite Dialect = "sqlite"
)

// Validate says whether the dialect is one of those above.
func (d Dialect) Validate() error {
	switch d {
	case PostgreSQL, MySQL, SQLite:
		return nil
	case "":
		return errors.New("dialect is missing: use postbox.PostgreSQL, postbox.MySQL or postbox.SQLite")
	default:
		return fmt.Errorf("dialect %q is unknown: use postbox.PostgreSQL, postbox.MySQL or postbox.SQLite", string(d))
	}
}

// Tables says where Postbox keeps its tables, so that several modules can live in one database.
// The zero value puts them, with the prefix "postbox_", where the connection's search path points.
type Tables struct {
	// Schema is the PostgreSQL schema, which must exist, with its capitals as they are. Defaults to the connection's search path.
	// MySQL and SQLite know no such thing: leave it empty there.
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
}
