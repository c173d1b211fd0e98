package testdb

import (
	"context"
	"database/sql"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
)

// admin makes and removes the databases of tests on one server. All tests of a process share its
// sessions: a session that has made the tables before needs two thirds of the processor time of a
// new one.
type admin struct {
	driver string

	mu    sync.Mutex
	db    *sql.DB
	users int // the last one closes the sessions
}

// adminSessions is how many there are at most: as many as tests that run at a time.
const adminSessions = 4

var admins sync.Map // of *admin, by address

// postgresServer returns the admin of the server at an address, and the statement that leads its
// session to the schema of the address.
func postgresServer(tb testing.TB, dsn string) (server *admin, enter string) {
	tb.Helper()
	u, err := url.Parse(dsn)
	require.NoError(tb, err)
	query := u.Query()
	if schema := query.Get("search_path"); schema != "" {
		enter = "SET LOCAL search_path = " + schema
	}
	query.Del("search_path")
	u.RawQuery = query.Encode()
	return adminOf(tb, "postgres", u.String()), enter
}

// mysqlServer returns the admin of the server at an address, and the statement that leads its
// session to the database of the address.
func mysqlServer(tb testing.TB, dsn string) (server *admin, enter string) {
	tb.Helper()
	config, err := mysql.ParseDSN(dsn)
	require.NoError(tb, err)
	enter = "USE " + config.DBName
	config.DBName, config.MultiStatements = "", true
	return adminOf(tb, "mysql", config.FormatDSN()), enter
}

// adminOf returns the admin of a server until the test ends.
func adminOf(tb testing.TB, driver, dsn string) *admin {
	tb.Helper()
	found, _ := admins.LoadOrStore(dsn, &admin{driver: driver})
	a := found.(*admin) //nolint:forcetypeassert // nothing else is stored there
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.users == 0 {
		db, err := sql.Open(driver, dsn)
		require.NoError(tb, err)
		db.SetMaxOpenConns(adminSessions)
		db.SetMaxIdleConns(adminSessions)
		db.SetConnMaxIdleTime(time.Second) // servers with hostile settings end sessions that are idle for three
		a.db = db
	}
	a.users++
	tb.Cleanup(a.release)
	return a
}

func (a *admin) release() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.users--; a.users == 0 {
		_ = a.db.Close()
	}
}

// room makes room for a test, and clears it away afterwards.
func (a *admin) room(tb testing.TB, create, drop string) {
	tb.Helper()
	_, err := a.db.ExecContext(tb.Context(), create)
	require.NoError(tb, err)
	tb.Cleanup(func() {
		if _, err := a.db.ExecContext(context.WithoutCancel(tb.Context()), drop); err != nil {
			tb.Logf("clear away: %s", err)
		}
	})
}

// run runs a text in one session, after a statement that leads it to the room of the test, if there
// is one.
func (a *admin) run(tb testing.TB, enter, text string) {
	tb.Helper()
	tx, err := a.db.BeginTx(tb.Context(), nil)
	require.NoError(tb, err)
	defer func() { _ = tx.Rollback() }()
	for _, statement := range []string{enter, text} {
		if statement != "" {
			_, err := tx.ExecContext(tb.Context(), statement)
			require.NoError(tb, err)
		}
	}
	require.NoError(tb, tx.Commit())
}
