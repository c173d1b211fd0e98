package forwarder_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// Each driver has another error for a commit after its context has ended.
func TestInTx_a_context_that_ends_before_the_commit_is_the_same_error_on_each_database(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		database.Exec(t, "CREATE TABLE business (name VARCHAR(20) NOT NULL)")
		insert := func(ctx context.Context, tx *sql.Tx) {
			_, err := tx.ExecContext(ctx, "INSERT INTO business VALUES ('a')")
			require.NoError(t, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		err := postbox.InTx(ctx, database.DB, func(ctx context.Context, tx *sql.Tx) error {
			insert(ctx, tx)
			cancel()
			return nil
		})
		require.EqualError(t, err, "commit: context canceled")
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, postbox.ErrCommitUnknown)

		late := overdue{Context: t.Context(), over: make(chan struct{})}
		err = postbox.InTx(late, database.DB, func(ctx context.Context, tx *sql.Tx) error {
			insert(ctx, tx)
			close(late.over)
			<-ctx.Done()
			return nil
		})
		require.EqualError(t, err, "commit: context deadline exceeded")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM business"), "it is rolled back")
	})
}

// overdue is a context whose deadline comes when a test says so.
type overdue struct {
	context.Context //nolint:containedctx // it is one

	over chan struct{}
}

func (o overdue) Done() <-chan struct{} { return o.over }

func (o overdue) Err() error {
	select {
	case <-o.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// The server rolls back all of the transaction, and then commits each statement by itself.
func TestInTx_G1_a_deadlock_that_a_function_ignores_is_an_error(t *testing.T) {
	t.Parallel()
	for name, afterwards := range map[string]bool{"and publishes": true, "and does nothing more": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			database := testdb.MySQL(t).Migrate(t)
			for _, db := range []*sql.DB{database.DB, database.OpenWrapped(t)} {
				err := passOverDeadlock(t, database, db, afterwards)
				require.ErrorIs(t, err, postbox.ErrCommitUnknown)
				require.ErrorContains(t, err, "deadlock")
			}
		})
	}
}

// passOverDeadlock runs a transaction of db as the victim of a deadlock: the server ends the one
// that has done less.
func passOverDeadlock(t *testing.T, database *testdb.Database, db *sql.DB, afterwards bool) error {
	t.Helper()
	database.Exec(t, "DROP TABLE IF EXISTS accounts")
	database.Exec(t, "CREATE TABLE accounts (id INT NOT NULL PRIMARY KEY, balance INT NOT NULL)")
	database.Exec(t, "INSERT INTO accounts VALUES (1, 0), (2, 0)")
	publisher := publisherFor(t, database, nil)
	other, err := database.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = other.Rollback() }()
	for i := range 50 {
		_, err = other.ExecContext(t.Context(), fmt.Sprintf("INSERT INTO accounts VALUES (%d, 0)", 100+i))
		require.NoError(t, err)
	}
	const update = "UPDATE accounts SET balance = balance + 1 WHERE id = "
	_, err = other.ExecContext(t.Context(), update+"2")
	require.NoError(t, err)
	waits := make(chan error, 1)
	err = postbox.InTx(t.Context(), db, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, update+"1"); err != nil {
			return err
		}
		go func() {
			_, err := other.ExecContext(context.WithoutCancel(ctx), update+"1")
			waits <- err
		}()
		if _, err := tx.ExecContext(ctx, update+"2"); err == nil {
			return errors.New("there was none")
		}
		if !afterwards {
			return nil
		}
		msg := newMessage("a", "")
		msg.SetContext(ctx)
		return publisher.Publish("orders", msg)
	})
	require.NoError(t, <-waits)
	return err
}

func TestInTx_G1_a_function_that_ends_its_transaction_gets_an_error(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		for name, end := range endings() {
			for _, db := range []*sql.DB{database.DB, database.OpenWrapped(t)} {
				require.ErrorIs(t, postbox.InTx(t.Context(), db, end), postbox.ErrCommitUnknown, name)
			}
			handles := []*sql.DB{database.DB}
			if database.Dialect != postbox.MySQL || database.IsMariaDB(t) { // MySQL prepares no SAVEPOINT, and this driver prepares all
				handles = append(handles, database.OpenWrapped(t))
			}
			for _, db := range handles {
				require.ErrorIs(t, postbox.InTx(t.Context(), db, func(ctx context.Context, _ *sql.Tx) error {
					require.ErrorIs(t, postbox.InTx(ctx, db, end), postbox.ErrCommitUnknown, name)
					return nil
				}), postbox.ErrCommitUnknown, name)
			}
		}
	})
}

// endings are functions that end their transaction.
func endings() map[string]inTxFunc {
	execute := func(statement string) inTxFunc {
		return func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, statement)
			return err
		}
	}
	return map[string]inTxFunc{
		"Commit()":   func(_ context.Context, tx *sql.Tx) error { return tx.Commit() },
		"Rollback()": func(_ context.Context, tx *sql.Tx) error { return tx.Rollback() },
		"COMMIT":     execute("COMMIT"),
		"ROLLBACK":   execute("ROLLBACK"),
	}
}

// The last statement has changed rows or not, is prepared or not, or failed without an end of the
// transaction.
func TestInTx_G1_commits_whatever_the_last_statement_was(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Exec(t, "CREATE TABLE business (name VARCHAR(20) NOT NULL PRIMARY KEY)")
		last := map[string]func(ctx context.Context, tx *sql.Tx) error{
			"no row": func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, "DELETE FROM business WHERE name = 'none'")
				return err
			},
			"query": func(ctx context.Context, tx *sql.Tx) error {
				var n int
				return tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM business").Scan(&n)
			},
			"prepared": func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, database.Bind("INSERT INTO business VALUES (?)"), "another")
				return err
			},
		}
		if database.Dialect != postbox.PostgreSQL {
			last["failed"] = func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, "INSERT INTO business VALUES ('failed')")
				require.Error(t, err)
				return nil
			}
		}
		for name, end := range last {
			require.NoError(t, postbox.InTx(t.Context(), database.DB, func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, database.Bind("INSERT INTO business VALUES (?)"), name)
				return errors.Join(err, end(ctx, tx))
			}), name)
		}
		require.Equal(t, len(last)+1, database.Count(t, "SELECT COUNT(*) FROM business"))
	})
}

// database/sql closes them before it commits.
func TestInTx_commits_where_its_function_leaves_rows_open(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Exec(t, "CREATE TABLE business (name VARCHAR(20) NOT NULL)")
		for range 3 {
			require.NoError(t, postbox.InTx(t.Context(), database.DB, writing(database, "a", func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, "INSERT INTO business VALUES ('b')")
				require.NoError(t, err)
				rows, err := tx.QueryContext(ctx, "SELECT name FROM business") //nolint:rowserrcheck,sqlclosecheck // as many do
				require.NoError(t, err)
				require.True(t, rows.Next())
				return nil
			})))
		}
		require.Equal(t, 6, database.Count(t, "SELECT COUNT(*) FROM business"))
	})
}
