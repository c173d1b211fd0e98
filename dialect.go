package postbox

// Dialect names the kind of database that Postbox keeps its tables in.
// It decides only the SQL text. The code that opens the *sql.DB chooses the driver.
type Dialect string

const (
	// PostgreSQL is version 13 or later, through lib/pq or pgx/v5/stdlib.
	PostgreSQL Dialect = "postgresql"
	// MySQL is MySQL 8 or MariaDB 10.6 or later, through go-sql-driver/mysql.
	MySQL Dialect = "mysql"
	// SQLite is version 3.43 or later, through modernc.org/sqlite. Open it with
	// _pragma=busy_timeout(…), _pragma=journal_mode(WAL), _txlock=immediate and SetMaxOpenConns(1):
	// SQLite has one writer, and waiting in the pool is cheaper than waiting for its lock.
	// [Migrate], forwarders, queues and stores refuse a file that is opened without busy_timeout or
	// _txlock=immediate, because transactions on it fail as soon as two meet.
	SQLite Dialect = "sqlite"
)
