package postbox_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// A session that turns on the write-ahead log of a new file does not wait for another one that is
// just making the file, whatever its busy_timeout is.
func TestMigrate_tries_again_while_another_process_makes_the_file(t *testing.T) {
	t.Parallel()
	file := "file:" + t.TempDir() + "/orders.db?_txlock=immediate&_pragma=busy_timeout(1)"
	first, err := sql.Open("sqlite", file)
	require.NoError(t, err)
	defer func() { _ = first.Close() }()
	making, err := first.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = making.ExecContext(t.Context(), "CREATE TABLE orders (id INTEGER PRIMARY KEY)")
	require.NoError(t, err)

	db, err := sql.Open("sqlite", file+"&_pragma=journal_mode(WAL)")
	require.NoError(t, err)
	defer func() { _ = db.Close() }()
	require.ErrorContains(t, db.PingContext(t.Context()), "locked")
	database := postbox.Database{DB: db, Dialect: postbox.SQLite}
	require.ErrorContains(t, postbox.Migrate(t.Context(), database), "gave up after")

	require.NoError(t, making.Commit())
	require.NoError(t, postbox.Migrate(t.Context(), database))
}

// Names of locks are those of the whole server of MySQL, and services have databases of their own.
func TestMigrate_does_not_wait_for_that_of_another_database(t *testing.T) {
	t.Parallel()
	busy, free := testdb.MySQL(t), testdb.MySQL(t)
	statements, err := spool.StatementsIn(busy.Postbox())
	require.NoError(t, err)
	conn, err := busy.DB.Conn(t.Context())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	var got int
	require.NoError(t, conn.QueryRowContext(t.Context(), statements.MigrateLock, "postbox migrate "+statements.VersionTable).Scan(&got))
	require.Equal(t, 1, got)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	require.NoError(t, postbox.Migrate(ctx, free.Postbox()))
}
