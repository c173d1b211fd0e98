package forwarder_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

type inTxFunc = func(ctx context.Context, tx *sql.Tx) error

// writing returns a function that writes a name, and then does what it is told.
func writing(database *testdb.Database, name string, then inTxFunc) inTxFunc {
	return func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, database.Bind("INSERT INTO business VALUES (?)"), name); err != nil || then == nil {
			return err
		}
		return then(ctx, tx)
	}
}

func TestInTx_G1_within_a_transaction_is_part_of_it(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		database.DB.SetMaxOpenConns(1) // G10
		database.Exec(t, "CREATE TABLE business (name VARCHAR(20))")
		publisher := publisherFor(t, database, nil)
		nested := func(outer error) error {
			return postbox.InTx(t.Context(), database.DB, writing(database, "a", func(ctx context.Context, tx *sql.Tx) error {
				require.NoError(t, postbox.InTx(ctx, database.DB, writing(database, "b", func(ctx context.Context, inner *sql.Tx) error {
					require.Same(t, tx, inner)
					msg := newMessage("1", "")
					msg.SetContext(ctx)
					return publisher.Publish("topic", msg)
				})))
				require.ErrorIs(t, postbox.InTx(ctx, database.DB, writing(database, "failed", func(context.Context, *sql.Tx) error { return errBroker })), errBroker)
				require.PanicsWithValue(t, "oh", func() {
					_ = postbox.InTx(ctx, database.DB, writing(database, "panicked", func(context.Context, *sql.Tx) error { panic("oh") }))
				})
				ended, cancel := context.WithCancel(ctx)
				require.ErrorIs(t, postbox.InTx(ended, database.DB, writing(database, "too late", func(context.Context, *sql.Tx) error {
					cancel()
					return nil
				})), context.Canceled)
				return outer
			}))
		}
		require.ErrorIs(t, nested(errBroker), errBroker)
		require.Empty(t, query(t, database.DB, "SELECT name FROM business"))
		require.Zero(t, pending(t, database))
		require.NoError(t, nested(nil))
		require.Equal(t, []string{"a", "b"}, query(t, database.DB, "SELECT name FROM business ORDER BY name"))
		require.Equal(t, 1, pending(t, database))
	})
}

// A server ends the whole transaction at the first statement that fails, or keeps what others
// wrote. The savepoint makes them alike.
func TestInTx_within_a_transaction_rolls_back_to_its_savepoint_after_an_error(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Exec(t, "CREATE TABLE business (name VARCHAR(20))")
		require.NoError(t, postbox.InTx(t.Context(), database.DB, writing(database, "a", func(ctx context.Context, _ *sql.Tx) error {
			require.Error(t, postbox.InTx(ctx, database.DB, writing(database, "failed", func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, "INSERT INTO no_such_table VALUES (1)")
				return err
			})))
			return postbox.InTx(ctx, database.DB, writing(database, "b", nil))
		})))
		require.Equal(t, []string{"a", "b"}, query(t, database.DB, "SELECT name FROM business ORDER BY name"))
	})
}

// The server has rolled back the whole transaction, and the savepoint with it. The error of the
// deadlock says so, and is the only one. If the function has ignored it, the error says that the
// savepoint is gone.
func TestInTx_within_a_transaction_that_a_deadlock_has_ended(t *testing.T) {
	t.Parallel()
	database := testdb.MySQL(t)
	database.Exec(t, "CREATE TABLE business (name VARCHAR(20) PRIMARY KEY, n INTEGER NOT NULL)")
	database.Exec(t, "INSERT INTO business VALUES ('a', 0), ('b', 0), ('c', 0)")
	add := func(ctx context.Context, tx *sql.Tx, name string) error {
		_, err := tx.ExecContext(ctx, "UPDATE business SET n = n + 1 WHERE name = ?", name)
		return err
	}
	for _, ignored := range []bool{false, true} {
		other, err := database.DB.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, add(t.Context(), other, "a"))
		require.NoError(t, add(t.Context(), other, "c")) // it has changed more rows, so the server does not choose it
		ended := make(chan error, 1)
		err = postbox.InTx(t.Context(), database.DB, func(ctx context.Context, tx *sql.Tx) error {
			if err := add(ctx, tx, "b"); err != nil {
				return err
			}
			return postbox.InTx(ctx, database.DB, func(ctx context.Context, tx *sql.Tx) error {
				// One of the two is the second that waits, and closes the circle. The server
				// chooses by what they have changed, not by their order.
				go func() { ended <- add(context.WithoutCancel(ctx), other, "b") }()
				err := add(ctx, tx, "a")
				if ignored && err != nil {
					return errBroker
				}
				return err
			})
		})
		require.NoError(t, <-ended)
		require.NoError(t, other.Rollback())
		if ignored {
			require.ErrorIs(t, err, errBroker)
			require.ErrorContains(t, err, "SAVEPOINT")
			continue
		}
		require.Equal(t, dialect.Conflict, dialect.MySQL.Classify(err), "%v", err)
		require.NotContains(t, err.Error(), "SAVEPOINT")
		require.NotContains(t, err.Error(), "roll back")
	}
}

func TestInTx_within_a_transaction_runs_AfterCommit_functions_unless_it_failed(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	ran := []string{}
	nested := func(ctx context.Context, name string, fails error) {
		require.ErrorIs(t, postbox.InTx(ctx, database.DB, func(ctx context.Context, _ *sql.Tx) error {
			require.True(t, postbox.AfterCommit(ctx, func() { ran = append(ran, name) }))
			return fails
		}), fails)
	}
	require.NoError(t, postbox.InTx(t.Context(), database.DB, func(ctx context.Context, _ *sql.Tx) error {
		nested(ctx, "committed", nil)
		nested(ctx, "rolled back", errBroker)
		require.Empty(t, ran)
		return nil
	}))
	require.Equal(t, []string{"committed"}, ran)
}

func TestInTx_within_a_transaction_of_another_database_has_its_own(t *testing.T) {
	t.Parallel()
	one, two := testdb.SQLite(t), testdb.SQLite(t)
	for _, database := range []*testdb.Database{one, two} {
		database.Exec(t, "CREATE TABLE business (name VARCHAR(20))")
	}
	require.ErrorIs(t, postbox.InTx(t.Context(), one.DB, writing(one, "a", func(ctx context.Context, tx *sql.Tx) error {
		require.NoError(t, postbox.InTx(ctx, two.DB, writing(two, "b", func(ctx context.Context, inner *sql.Tx) error {
			require.NotSame(t, tx, inner)
			carried, _ := postbox.TxFromContext(ctx)
			require.Same(t, inner, carried)
			return nil
		})))
		return errBroker
	})), errBroker)
	require.Empty(t, query(t, one.DB, "SELECT name FROM business"))
	require.Equal(t, []string{"b"}, query(t, two.DB, "SELECT name FROM business"))
}

func TestInTx_has_its_own_transaction_if_that_of_the_context_was_removed(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) { // SQLite has one writer
		database.Exec(t, "CREATE TABLE business (name VARCHAR(20))")
		require.ErrorIs(t, postbox.InTx(t.Context(), database.DB, writing(database, "a", func(ctx context.Context, _ *sql.Tx) error {
			require.NoError(t, postbox.InTx(postbox.ContextWithTx(ctx, nil), database.DB, writing(database, "b", nil)))
			return errBroker
		})), errBroker)
		require.Equal(t, []string{"b"}, query(t, database.DB, "SELECT name FROM business"))
	})
}

func TestInTxWith_other_options_than_those_of_the_transaction_are_refused(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		serializable := &sql.TxOptions{Isolation: sql.LevelSerializable}
		fine := func(context.Context, *sql.Tx) error { return nil }
		never := func(context.Context, *sql.Tx) error { return errors.New("it runs") }
		require.NoError(t, postbox.InTxWith(t.Context(), database.DB, serializable, func(ctx context.Context, tx *sql.Tx) error {
			require.NoError(t, postbox.InTx(ctx, database.DB, fine))
			require.NoError(t, postbox.InTxWith(ctx, database.DB, &sql.TxOptions{}, fine), "it asks for nothing")
			require.NoError(t, postbox.InTxWith(ctx, database.DB, &sql.TxOptions{Isolation: sql.LevelSerializable}, fine))
			return nil
		}))
		begun, err := database.DB.BeginTx(t.Context(), serializable)
		require.NoError(t, err)
		defer func() { _ = begun.Rollback() }()
		ctx := postbox.ContextWithTx(t.Context(), begun)
		require.ErrorContains(t, postbox.InTxWith(ctx, database.DB, serializable, never), "postbox.ContextWithTx(ctx, nil)", "it is not known how it began")
		require.NoError(t, postbox.InTx(ctx, database.DB, fine))
		require.NoError(t, postbox.InTx(t.Context(), database.DB, func(ctx context.Context, _ *sql.Tx) error {
			require.ErrorContains(t, postbox.InTxWith(ctx, database.DB, &sql.TxOptions{ReadOnly: true}, never), "did not begin with the options")
			return nil
		}))
	})
}

func TestInTx_nil_arguments_are_errors(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	require.ErrorContains(t, postbox.InTx(t.Context(), nil, func(context.Context, *sql.Tx) error { return nil }), "the database or the function is nil")
	require.ErrorContains(t, postbox.InTx(t.Context(), database.DB, nil), "the database or the function is nil")
	_, err := forwarder.New(database.Postbox(), (*forwarder.Publisher)(nil), forwarder.Config{}, nil)
	require.ErrorContains(t, err, "is nil")
}

// A hook runs after the commit, with the context of before.
func TestInTx_in_a_hook_has_its_own_transaction(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		database.DB.SetMaxOpenConns(1) // G10
		database.Exec(t, "CREATE TABLE business (name VARCHAR(20))")
		publisher := publisherFor(t, database, nil)
		hook := func(ctx context.Context, name string) func() {
			return func() {
				require.NoError(t, postbox.InTx(ctx, database.DB, writing(database, name, nil)))
				msg := newMessage("1", "")
				msg.SetContext(ctx)
				require.ErrorIs(t, publisher.Publish("topic", msg), postbox.ErrNoTransaction)
			}
		}
		require.NoError(t, postbox.InTx(t.Context(), database.DB, func(ctx context.Context, _ *sql.Tx) error {
			require.True(t, postbox.AfterCommit(ctx, hook(ctx, "outer")))
			return postbox.InTx(ctx, database.DB, func(ctx context.Context, _ *sql.Tx) error {
				require.True(t, postbox.AfterCommit(ctx, hook(ctx, "nested")))
				return nil
			})
		}))
		require.Equal(t, []string{"nested", "outer"}, query(t, database.DB, "SELECT name FROM business ORDER BY name"))
	})
}

// ROLLBACK TO SAVEPOINT undoes all later writes of the transaction, also those of another goroutine
// whose InTx has already returned nil.
func TestInTx_concurrent_calls_in_one_transaction_are_refused(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Exec(t, "CREATE TABLE business (name VARCHAR(20))")
		require.NoError(t, postbox.InTx(t.Context(), database.DB, func(ctx context.Context, _ *sql.Tx) error {
			begun, tried, failed := make(chan struct{}), make(chan struct{}), make(chan error)
			go func() {
				failed <- postbox.InTx(ctx, database.DB, func(context.Context, *sql.Tx) error {
					close(begun)
					<-tried
					return errBroker
				})
			}()
			<-begun
			beside := postbox.InTx(ctx, database.DB, writing(database, "beside", nil))
			close(tried)
			require.ErrorIs(t, <-failed, errBroker)
			require.ErrorContains(t, beside, "call one after the other")
			return postbox.InTx(ctx, database.DB, writing(database, "afterwards", nil))
		}))
		require.Equal(t, []string{"afterwards"}, query(t, database.DB, "SELECT name FROM business"))
	})
}

// The user put the transaction into the context, so no scope of Postbox says on which database it
// began.
func TestInTx_within_a_transaction_that_the_user_began_on_another_database_has_its_own(t *testing.T) {
	t.Parallel()
	one, two := testdb.SQLite(t), testdb.SQLite(t)
	for _, database := range []*testdb.Database{one, two} {
		database.Exec(t, "CREATE TABLE business (name VARCHAR(20))")
	}
	tx, err := one.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	ctx := postbox.ContextWithTx(t.Context(), tx)
	require.NoError(t, postbox.InTx(ctx, two.DB, writing(two, "two", nil)))
	require.NoError(t, postbox.InTx(ctx, one.DB, writing(one, "one", nil)))
	require.NoError(t, tx.Commit())
	require.Equal(t, []string{"one"}, query(t, one.DB, "SELECT name FROM business"))
	require.Equal(t, []string{"two"}, query(t, two.DB, "SELECT name FROM business"))
}

func query(t *testing.T, db *sql.DB, text string) (found []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), text)
	require.NoError(t, err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var s string
		require.NoError(t, rows.Scan(&s))
		found = append(found, s)
	}
	require.NoError(t, rows.Err())
	return found
}
