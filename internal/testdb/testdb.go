// Package testdb gives each test a database of its own: a file, a schema or a database on a server that
// scripts/services started. It is for the tests of Postbox itself.
package testdb

import (
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
)

// Variables by which scripts/services tells where the servers are.
const (
	PostgresVariable = "TEST_POSTGRES_DSN"
	MySQLVariable    = "TEST_MYSQL_DSN"
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
	dsn     func(t *testing.T) string
}

var backends = []backend{
	{name: "sqlite", dialect: postbox.SQLite, driver: "sqlite", dsn: sqliteDSN},
	{name: "postgres-pq", dialect: postbox.PostgreSQL, driver: "postgres", dsn: postgresDSN},
	{name: "postgres-pgx", dialect: postbox.PostgreSQL, driver: "pgx", dsn: postgresDSN},
	{name: "mariadb", dialect: postbox.MySQL, driver: "mysql", dsn: mysqlDSN},
}

// Each runs the test once on every database that is there, and skips it, saying why, on the others.
func Each(t *testing.T, test func(t *testing.T, database *Database)) {
	t.Helper()
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			test(t, b.open(t))
		})
	}
}

// Postgres returns a database on PostgreSQL through lib/pq, or skips the test.
func Postgres(t *testing.T) *Database { t.Helper(); return backends[1].open(t) }

// MySQL returns a database on MariaDB or MySQL, or skips the test.
func MySQL(t *testing.T) *Database { t.Helper(); return backends[3].open(t) }

// SQLite returns a database in a file.
func SQLite(t *testing.T) *Database { t.Helper(); return backends[0].open(t) }

func (b backend) open(t *testing.T) *Database {
	t.Helper()
	database := &Database{Dialect: b.dialect, Driver: b.driver, DSN: b.dsn(t)}
	database.DB = database.Open(t)
	return database
}

// Open returns another handle on the same database, as another process would have it.
func (d *Database) Open(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open(d.Driver, d.DSN)
	require.NoError(t, err)
	if d.Dialect == postbox.SQLite {
		db.SetMaxOpenConns(1)
	} else {
		db.SetMaxOpenConns(16) // tests run side by side on one small server
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// Migrate creates the tables of Postbox.
func (d *Database) Migrate(t *testing.T) *Database {
	t.Helper()
	require.NoError(t, postbox.Migrate(t.Context(), d.DB, postbox.MigrateConfig{Dialect: d.Dialect}))
	return d
}

// Exec runs statements of a test.
func (d *Database) Exec(t *testing.T, query string, args ...any) {
	t.Helper()
	_, err := d.DB.ExecContext(t.Context(), d.Bind(query), args...)
	require.NoError(t, err, query)
}

// Count returns the one number that the query selects.
func (d *Database) Count(t *testing.T, query string, args ...any) int {
	t.Helper()
	var n int
	require.NoError(t, d.DB.QueryRowContext(t.Context(), d.Bind(query), args...).Scan(&n), query)
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

func sqliteDSN(t *testing.T) string {
	t.Helper()
	path := strings.ReplaceAll(filepath.Join(t.TempDir(), "postbox.db"), "#", "%23") // subtests have # in their names
	return "file:" + path +
		"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_txlock=immediate"
}

var names atomic.Int64

// uniqueName is unique also among test processes that share a server.
func uniqueName() string {
	return fmt.Sprintf("t%d_%d_%d", os.Getpid(), time.Now().UnixNano()%1e9, names.Add(1))
}

func variable(t *testing.T, name string) string {
	t.Helper()
	value := os.Getenv(name)
	if value == "" {
		t.Skipf("%s is not set: run through scripts/services (make test) to test on this database", name)
	}
	return value
}

func postgresDSN(t *testing.T) string {
	t.Helper()
	dsn, name := variable(t, PostgresVariable), uniqueName()
	admin(t, "postgres", dsn, "CREATE SCHEMA "+name, "DROP SCHEMA "+name+" CASCADE")
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	query := u.Query()
	query.Set("search_path", name)
	u.RawQuery = query.Encode()
	return u.String()
}

func mysqlDSN(t *testing.T) string {
	t.Helper()
	dsn, name := variable(t, MySQLVariable), uniqueName()
	admin(t, "mysql", dsn, "CREATE DATABASE "+name, "DROP DATABASE "+name)
	config, err := mysql.ParseDSN(dsn)
	require.NoError(t, err)
	config.DBName = name
	return config.FormatDSN()
}

// admin makes room for a test and clears it away afterwards.
func admin(t *testing.T, driver, dsn, create, drop string) {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), create)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := db.Exec(drop) //nolint:noctx // the test's context is over
		if err != nil {
			t.Logf("clear away: %s", err)
		}
		_ = db.Close()
	})
}
