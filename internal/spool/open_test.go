package spool_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/enginetest"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// A user's transaction has read something, a forwarder registers the outbox, and then the
// transaction publishes: on MySQL its reads still show the database without the outbox.
func TestOpen_finds_a_spool_that_was_registered_after_the_transaction_began(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		if database.Dialect == postbox.SQLite {
			return // it has one writer: nobody registers meanwhile
		}
		b := enginetest.NewBench(t, database)
		tx, err := database.DB.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		var n int
		require.NoError(t, tx.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM postbox_messages").Scan(&n))

		another := spool.New(b.Statements, b.Spool.Name())
		_, err = another.Open(t.Context(), database.DB)
		require.NoError(t, err)

		b.Append(tx, enginetest.Draft("1", ""))
		require.NoError(t, tx.Commit())
		require.Equal(t, 1, b.Pending())
	})
}

// What one transaction has seen, through however many wrappers, and has rolled back, is not there
// for the next one: a message that went there would never be read, or go out of the spool that
// SQLite gives the id to. Also covers G2.
func TestOpen_G1_a_spool_registered_by_a_rolled_back_transaction_is_forgotten(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := enginetest.NewBench(t, database)
		fresh := spool.New(b.Statements, "fresh")
		write := func(executor func(tx *sql.Tx) spool.Executor, end func(tx *sql.Tx) error) {
			tx, err := database.DB.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			for range 3 {
				require.NoError(t, fresh.Append(t.Context(), executor(tx), spool.Run, []spool.Draft{enginetest.Draft("1", "")}))
			}
			require.NoError(t, end(tx))
		}
		plain := func(tx *sql.Tx) spool.Executor { return tx }
		wrapped := func(tx *sql.Tx) spool.Executor { return struct{ *sql.Tx }{tx} }
		anew := func(tx *sql.Tx) spool.Executor { return &struct{ *sql.Tx }{tx} } // not equal to the one before
		write(plain, (*sql.Tx).Rollback)
		write(wrapped, (*sql.Tx).Rollback)
		write(anew, (*sql.Tx).Rollback)
		_, err := spool.New(b.Statements, "another").Open(t.Context(), database.DB) // SQLite uses an id again
		require.NoError(t, err)
		for range 3 {
			write(plain, (*sql.Tx).Commit)
		}
		require.Equal(t, 9, database.Count(t,
			"SELECT COUNT(*) FROM postbox_messages m JOIN postbox_spools s ON s.id = m.spool WHERE s.name = 'fresh'"))
	})
}

// A transaction registers the spool behind a savepoint, goes back to that, and stores a message.
// Also covers G2.
func TestOpen_G1_a_spool_registered_in_a_rolled_back_savepoint_is_forgotten(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := enginetest.NewBench(t, database)
		tx, err := database.DB.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		exec := func(text string) {
			_, err := tx.ExecContext(t.Context(), text)
			require.NoError(t, err)
		}
		exec("SAVEPOINT part")
		b.Append(tx, enginetest.Draft("1", ""))
		exec("ROLLBACK TO SAVEPOINT part")
		b.Append(tx, enginetest.Draft("2", ""))
		require.NoError(t, tx.Commit())
		require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_messages m JOIN postbox_spools s ON s.id = m.spool"))
	})
}

// A process that stores messages only in transactions of others asks for the id in each
// transaction, until the id is known to be committed.
func TestFinder_finds_only_committed_spools(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := enginetest.NewBench(t, database)
		if database.Dialect == postbox.MySQL { // where a statement by itself would see what is not committed
			config, err := mysql.ParseDSN(database.DSN)
			require.NoError(t, err)
			config.Params = map[string]string{database.IsolationVariable(t): "'READ-UNCOMMITTED'"}
			database.DSN = config.FormatDSN()
			database.DB = database.Open(t)
		}
		finder := spool.NewFinder(b.Spool, database.DB)
		defer finder.Close()
		tx, err := database.DB.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		b.Append(tx, enginetest.Draft("1", ""))
		finder.Look() // with one connection it waits for the end of the transaction
		if database.Dialect != postbox.SQLite {
			b.Eventually(func() bool { return !finder.Looking() }, "it has looked")
		}
		require.Zero(t, b.Spool.ID())
		require.NoError(t, tx.Commit())
		b.Eventually(func() bool { finder.Look(); return b.Spool.ID() != 0 }, "it is committed")
	})
}

// A database that was restored may have given the spool another id. An id that was read lately is
// used without another query, and one that was not is read in each transaction until it is read
// apart.
func TestOpen_G2_an_id_is_read_again_before_it_is_too_old(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	b := enginetest.NewBench(t, database)
	id, err := b.Spool.Open(t.Context(), database.DB)
	require.NoError(t, err)
	database.Exec(t, "UPDATE postbox_spools SET id = id + 7")
	open := func() (found int64) {
		require.NoError(t, spool.InTx(t.Context(), database.DB, b.Statements, func(tx *sql.Tx) (err error) {
			found, err = b.Spool.OpenIn(t.Context(), tx)
			return err
		}))
		return found
	}
	require.Equal(t, id, open())
	b.Spool.Age(spool.IDAge)
	require.Equal(t, id+7, open())
	require.Equal(t, id, b.Spool.ID(), "what a transaction sees is for that transaction alone")
	only := postbox.ExecFunc(func(context.Context, string, ...any) (int, error) { return 0, nil })
	found, err := b.Spool.OpenIn(t.Context(), only)
	require.NoError(t, err)
	require.Equal(t, id, found, "it cannot ask")

	finder := spool.NewFinder(b.Spool, database.DB)
	defer finder.Close()
	finder.Look()
	b.Eventually(func() bool { return b.Spool.ID() == id+7 }, "it is read again")
	require.False(t, b.Spool.Aged())
	b.Spool.Age(spool.IDAge / 2)
	finder.Look()
	b.Eventually(func() bool { return !finder.Looking() }, "it is read again before a transaction has to")
	b.Spool.Age(spool.IDAge / 2)
	require.False(t, b.Spool.Aged())
}
