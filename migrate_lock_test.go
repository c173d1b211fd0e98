package postbox_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// insertReady and insertWaiting are what producers of version 5 execute.
const (
	insertReady = `INSERT INTO postbox_messages (spool, lane, state, available_at, created_at, topic, message_id, payload, metadata)
		VALUES (1, 0, 0, 0, 0, 'orders', '', '', '{}')`
	insertWaiting = `INSERT INTO postbox_messages (spool, lane, state, available_at, created_at, topic, message_id, payload, metadata)
		VALUES (1, 0, 1, 0, 0, 'orders', '', '', '{}')`
)

// inTheWay begins a transaction that executes the statement, and returns it with the id of its session.
func inTheWay(t *testing.T, database *testdb.Database, statement string) (tx *sql.Tx, session int) {
	t.Helper()
	tx, err := database.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	_, err = tx.ExecContext(t.Context(), statement)
	require.NoError(t, err)
	require.NoError(t, tx.QueryRowContext(t.Context(), "SELECT pg_backend_pid()").Scan(&session))
	return tx, session
}

// migrateBehind migrates until that waits for the transaction of a session, which it then does again and again.
func migrateBehind(t *testing.T, database *testdb.Database, session int) (ended chan error) {
	t.Helper()
	ended = make(chan error, 1)
	go func() {
		ended <- postbox.Migrate(context.WithoutCancel(t.Context()), database.On(database.Open(t)))
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for waits := 0; waits == 0; {
		require.NoError(t, database.DB.QueryRowContext(ctx, "SELECT COUNT(*) FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid))", session).Scan(&waits))
	}
	return ended
}

func migratedBeforeWaiting(t *testing.T, database *testdb.Database) {
	t.Helper()
	require.NoError(t, postbox.MigrateTo(t.Context(), database.Postbox(), beforeWaiting))
}

// A migration that waits for a table keeps all others from it who come after it, so it waits for a short time only, again and again.
func TestMigrate_lets_producers_write_while_it_waits_for_a_lock(t *testing.T) {
	t.Parallel()
	database := testdb.Postgres(t)
	migratedBeforeWaiting(t, database)
	producer, session := inTheWay(t, database, insertReady)
	ended := migrateBehind(t, database, session)

	conn, err := database.DB.Conn(t.Context())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = conn.ExecContext(t.Context(), "SET statement_timeout = '5s'") // Migrate tries for ten minutes
	require.NoError(t, err)
	_, err = conn.ExecContext(t.Context(), insertReady)
	require.NoError(t, err, "another producer goes on")

	require.NoError(t, producer.Commit())
	require.NoError(t, <-ended)
	require.Equal(t, newest(database), database.Count(t, "SELECT MAX(version_id) FROM postbox_version"))
	require.Equal(t, 2, database.Count(t, "SELECT COUNT(*) FROM postbox_messages"))
	require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM pg_indexes WHERE schemaname = current_schema() AND indexname IN ('postbox_messages_due', 'postbox_messages_retrying')"))
}

// Millions of messages that wait take seconds to move.
func TestMigrate_lets_producers_write_while_it_moves_waiting_messages(t *testing.T) {
	t.Parallel()
	database := testdb.Postgres(t)
	migratedBeforeWaiting(t, database)
	database.Exec(t, insertWaiting)
	locked, session := inTheWay(t, database, "SELECT 1 FROM postbox_messages FOR UPDATE")
	ended := migrateBehind(t, database, session)

	tx, err := database.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	_, err = tx.ExecContext(t.Context(), "SET LOCAL lock_timeout = '50ms'")
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), insertReady)
	require.NoError(t, err, "a producer waits for nothing")
	require.NoError(t, tx.Commit())

	require.NoError(t, locked.Rollback())
	require.NoError(t, <-ended)
	require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_waiting"))
}

// A pooler gives each transaction another session, so a lock of the session would be left behind in one, and the next Migrate would wait for it.
func TestMigrate_takes_no_lock_that_outlives_its_transaction(t *testing.T) {
	t.Parallel()
	database := testdb.Postgres(t)
	migratedBeforeWaiting(t, database)
	producer, session := inTheWay(t, database, insertReady)
	ended := migrateBehind(t, database, session)
	require.Zero(t, database.Count(t, `SELECT COUNT(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid)
		WHERE l.locktype = 'advisory' AND ? = ANY (pg_blocking_pids(a.pid))`, session))
	require.NoError(t, producer.Commit())
	require.NoError(t, <-ended)
}

func TestMigrate_ends_with_its_context_while_it_waits_for_another_transaction(t *testing.T) {
	t.Parallel()
	database := testdb.Postgres(t)
	migratedBeforeWaiting(t, database)
	inTheWay(t, database, insertReady)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	err := postbox.Migrate(ctx, database.Postbox())
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// A session that turns on the write-ahead log of a new file does not wait for another one that is just making the file, whatever its busy_timeout is.
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
