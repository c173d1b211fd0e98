package testdb

import (
	"database/sql"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/testservice"
)

// ThroughPooler returns a database on PostgreSQL through PgBouncer in transaction mode, or skips
// the test. Options are parts of the address. PgBouncer refuses search_path there, so the schema of
// the test is named.
func (d *Database) ThroughPooler(tb testing.TB, driver, options string) postbox.Database {
	tb.Helper()
	db, err := sql.Open(driver, testservice.Address(tb, testservice.PgBouncerVariable)+"&"+options)
	require.NoError(tb, err)
	db.SetMaxOpenConns(16) // more than PgBouncer has to the server
	tb.Cleanup(func() { _ = db.Close() })
	direct, err := url.Parse(d.DSN)
	require.NoError(tb, err)
	return postbox.Database{DB: db, Dialect: d.Dialect, Schema: direct.Query().Get("search_path")}
}
