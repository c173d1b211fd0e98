package postbox_test

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
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
