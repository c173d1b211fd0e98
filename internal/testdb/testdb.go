// Package testdb gives each test a database of its own: a file, a schema or a database on a server
// that scripts/services started. It is for the tests of Postbox itself.
package testdb

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx"
	_ "github.com/lib/pq"              // driver "postgres"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite" // driver "sqlite"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/testservice"
)

// Database is an empty database that ends with its test.
type Database struct {
	// DB is a handle with the pool that the dialect wants.
	DB      *sql.DB
	Dialect postbox.Dialect
	// Driver and DSN open further handles.
	Driver string
	DSN    string
}

// backend is one way to reach one kind of database.
type backend struct {
	name    string
	dialect postbox.Dialect
	driver  string
	dsn     func(tb testing.TB) string
}

var (
	sqlite      = backend{name: "sqlite", dialect: postbox.SQLite, driver: "sqlite", dsn: sqliteDSN}
	postgresPQ  = backend{name: "postgres-pq", dialect: postbox.PostgreSQL, driver: "postgres", dsn: postgresDSN(testservice.PostgresVariable)}
	postgresPGX = backend{name: "postgres-pgx", dialect: postbox.PostgreSQL, driver: "pgx", dsn: postgresDSN(testservice.PostgresVariable)}
	postgresLog = backend{name: "postgres-log", dialect: postbox.PostgreSQL, driver: "postgres", dsn: postgresDSN(testservice.PostgresLogVariable)}
	mariadb     = backend{name: "mariadb", dialect: postbox.MySQL, driver: "mysql", dsn: mysqlDSN}
)

// driverVariable chooses the driver for PostgreSQL, "pq" or "pgx". Without it a test runs with
// both. With "pgx" all that does not run with both is skipped: make test runs it.
const driverVariable = "TEST_POSTGRES_DRIVER"

// Each runs the test once on every database that is there, and skips it, saying why, on the others.
// On PostgreSQL it runs with each driver, unless [driverVariable] chooses one.
func Each(t *testing.T, test func(t *testing.T, database *Database)) {
	t.Helper()
	each(t, test, sqlite, postgresPQ, postgresPGX, mariadb)
}

// EachServer is [Each] without SQLite: for what an embedded database with one writer cannot meet.
func EachServer(t *testing.T, test func(t *testing.T, database *Database)) {
	t.Helper()
	each(t, test, postgresPQ, postgresPGX, mariadb)
}

// EachServerOfSession is [EachServer] without lib/pq, which begins each transaction as READ WRITE,
// whatever the session says.
func EachServerOfSession(t *testing.T, test func(t *testing.T, database *Database)) {
	t.Helper()
	each(t, test, postgresPGX, mariadb)
}

func each(t *testing.T, test func(t *testing.T, database *Database), backends ...backend) {
	t.Helper()
	for _, b := range backends {
		if b.isChosen() {
			t.Run(b.name, func(t *testing.T) {
				t.Parallel()
				test(t, b.open(t))
			})
		}
	}
}

// isChosen says whether a test that runs on several databases runs on this one.
func (b backend) isChosen() bool {
	switch os.Getenv(driverVariable) {
	case "pq":
		return b.name != postgresPGX.name
	case "pgx":
		return b.name == postgresPGX.name
	}
	return true
}

// EachBenchmark runs the benchmark once on every database that is there, like [Each].
func EachBenchmark(b *testing.B, benchmark func(b *testing.B, database *Database)) {
	b.Helper()
	for _, backend := range []backend{sqlite, postgresPQ, postgresPGX, mariadb} {
		b.Run(backend.name, func(b *testing.B) { benchmark(b, backend.open(b)) })
	}
}

// Postgres returns a database on PostgreSQL through lib/pq, or skips the test.
func Postgres(t *testing.T) *Database { t.Helper(); return postgresPQ.open(t) }

// PostgresLog is [Postgres] on a server with wal_level=logical, whose log can be read.
func PostgresLog(t *testing.T) *Database { t.Helper(); return postgresLog.open(t) }

// MySQL returns a database on MariaDB or MySQL, or skips the test.
func MySQL(t *testing.T) *Database { t.Helper(); return mariadb.open(t) }

// SQLite returns a database in a file.
func SQLite(t *testing.T) *Database { t.Helper(); return sqlite.open(t) }

// SQLiteBenchmark is [SQLite] for a benchmark.
func SQLiteBenchmark(b *testing.B) *Database { b.Helper(); return sqlite.open(b) }

func (b backend) open(tb testing.TB) *Database {
	tb.Helper()
	if os.Getenv(driverVariable) == "pgx" && !strings.Contains(tb.Name(), "/"+postgresPGX.name) {
		tb.Skipf("%s is pgx: make test runs the tests that do not run with both drivers", driverVariable)
	}
	database := &Database{Dialect: b.dialect, Driver: b.driver, DSN: b.dsn(tb)}
	database.DB = database.Open(tb)
	return database
}

// Postbox returns what tells Postbox of the database.
func (d *Database) Postbox() postbox.Database { return d.On(d.DB) }

// On is [Database.Postbox] for another handle on the same database.
func (d *Database) On(db *sql.DB) postbox.Database {
	return postbox.Database{DB: db, Dialect: d.Dialect}
}

// PollPause is the pause between two checks of a condition that a test waits for. Each check may be
// a query, and many tests run at a time.
const PollPause = 10 * time.Millisecond

// connections is the pool of a handle: tests run side by side on one small server.
const connections = 16

// Open returns another handle on the same database, as another process would have it.
func (d *Database) Open(tb testing.TB) *sql.DB {
	tb.Helper()
	db, err := sql.Open(d.Driver, d.DSN)
	require.NoError(tb, err)
	if d.Dialect == postbox.SQLite {
		db.SetMaxOpenConns(1)
	} else {
		db.SetMaxOpenConns(connections)
		db.SetMaxIdleConns(connections) // a server starts a process for each new one
	}
	tb.Cleanup(func() { _ = db.Close() })
	return db
}

// OpenWith returns a handle whose sessions have further options, as they stand in the address.
func (d *Database) OpenWith(tb testing.TB, options string) *sql.DB {
	tb.Helper()
	separator := "?"
	if strings.Contains(d.DSN, "?") {
		separator = "&"
	}
	other := *d
	other.DSN += separator + options
	return other.Open(tb)
}

// RunScript runs a text of statements one by one, as a tool for migrations does that knows the
// bodies of functions.
func (d *Database) RunScript(tb testing.TB, text string) {
	tb.Helper()
	for _, statement := range ScriptStatements(tb, text) {
		d.Exec(tb, statement)
	}
}

// ScriptStatements returns the statements of a script.
func ScriptStatements(tb testing.TB, text string) (all []string) {
	tb.Helper()
	var statement strings.Builder
	body := false // of a function, which has semicolons of its own
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "--") {
			continue
		}
		statement.WriteString(line)
		if strings.Contains(line, "$$") {
			body = !body
		}
		if before, ended := strings.CutSuffix(strings.TrimSpace(statement.String()), ";"); ended && !body {
			all = append(all, before)
			statement.Reset()
		}
	}
	require.Empty(tb, strings.TrimSpace(statement.String()))
	return all
}

// Exec runs statements of a test.
func (d *Database) Exec(tb testing.TB, query string, args ...any) {
	tb.Helper()
	err := d.Again(func() error {
		_, err := d.DB.ExecContext(tb.Context(), d.Bind(query), args...)
		return err
	}, dialect.Conflict)
	require.NoError(tb, err, query)
}

// Again runs something of a test again that fails with an error of this kind, as a conflict with a
// drainer at work.
func (d *Database) Again(do func() error, kind dialect.ErrorKind) (err error) {
	for range 10 {
		if err = do(); dialect.Kind(d.Dialect).Classify(err) != kind {
			break
		}
	}
	return err
}

// MoveWaiting puts messages that a test has given another state to where the database keeps those
// that wait: PostgreSQL has a table of its own for them.
func (d *Database) MoveWaiting(tb testing.TB) {
	tb.Helper()
	if d.Dialect == postbox.PostgreSQL {
		d.Exec(tb, `WITH m AS (DELETE FROM ONLY postbox_messages WHERE state > 0 RETURNING *) INSERT INTO postbox_waiting SELECT * FROM m`)
	}
}

// DueWhenWritten gives ready messages the time at which they were written as their due time, which
// they may lack. A test that gives them another state counts from it. Where drainers run, call it
// in the transaction that stores the messages: PostgreSQL does not remove a row that changes
// meanwhile, and the message would be handled twice.
func DueWhenWritten(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, "UPDATE postbox_messages SET available_at = created_at WHERE state = 0 AND available_at = 0")
	return err
}

// Count returns the one number that the query selects.
func (d *Database) Count(tb testing.TB, query string, args ...any) int {
	tb.Helper()
	var n int
	err := d.Again(func() error {
		return d.DB.QueryRowContext(tb.Context(), d.Bind(query), args...).Scan(&n)
	}, dialect.Unavailable) // a session that the server has ended while it was idle
	require.NoError(tb, err, query)
	return n
}

// Bind turns each ? into what the database wants.
func (d *Database) Bind(query string) string {
	if d.Dialect != postbox.PostgreSQL {
		return query
	}
	for n := 1; strings.Contains(query, "?"); n++ {
		query = strings.Replace(query, "?", fmt.Sprintf("$%d", n), 1)
	}
	return query
}

// IsMariaDB reports whether a database of [MySQL] is on MariaDB.
func (d *Database) IsMariaDB(tb testing.TB) bool {
	tb.Helper()
	return d.Dialect == postbox.MySQL && d.Count(tb, "SELECT VERSION() LIKE '%MariaDB%'") == 1
}

// IsolationVariable is the name of the variable that sets the isolation of a session on MariaDB or
// MySQL.
func (d *Database) IsolationVariable(tb testing.TB) string {
	tb.Helper()
	if d.IsMariaDB(tb) {
		return "tx_isolation"
	}
	return "transaction_isolation"
}

func sqliteDSN(tb testing.TB) string {
	tb.Helper()
	path := strings.ReplaceAll(filepath.Join(tb.TempDir(), "postbox.db"), "#", "%23") // subtests have # in their names
	return sqliteAddress(path)
}

func sqliteAddress(path string) string {
	return "file:" + path +
		"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_txlock=immediate"
}

var names atomic.Int64

// uniqueName is unique also among test processes that share a server.
func uniqueName() string {
	return fmt.Sprintf("t%d_%d_%d", os.Getpid(), time.Now().UnixNano()%1e9, names.Add(1))
}

// postgresDSN makes a schema on the server that the variable names.
func postgresDSN(variable string) func(tb testing.TB) string {
	return func(tb testing.TB) string {
		tb.Helper()
		dsn, name := testservice.Address(tb, variable), uniqueName()
		u, err := url.Parse(dsn)
		require.NoError(tb, err)
		query := u.Query()
		query.Set("search_path", name)
		u.RawQuery = query.Encode()
		server, _ := postgresServer(tb, u.String())
		server.room(tb, "CREATE SCHEMA "+name, "DROP SCHEMA "+name+" CASCADE")
		return u.String()
	}
}

func mysqlDSN(tb testing.TB) string {
	tb.Helper()
	dsn, name := testservice.Address(tb, testservice.MySQLVariable), uniqueName()
	config, err := mysql.ParseDSN(dsn)
	require.NoError(tb, err)
	config.DBName = name
	server, _ := mysqlServer(tb, config.FormatDSN())
	server.room(tb, "CREATE DATABASE "+name, "DROP DATABASE "+name)
	return config.FormatDSN()
}
