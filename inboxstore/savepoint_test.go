package inboxstore_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

var errHandler = errors.New("no stock")

// The server has rolled back the whole transaction, and the savepoint with it. The error of the
// deadlock says so, and is the only one. If the handler has ignored it, the error says that the
// savepoint is gone.
func TestStore_within_a_transaction_that_a_deadlock_has_ended(t *testing.T) {
	t.Parallel()
	database := testdb.MySQL(t)
	store := inboxtest.StoreFor(t, database.Migrate(t), database.DB, nil)
	database.Exec(t, "CREATE TABLE business (name VARCHAR(20) PRIMARY KEY, n INTEGER NOT NULL)")
	heavy := strings.Split("acdefghijklmnopq", "") // with so many changed rows, a transaction is not the one that the server chooses
	for _, name := range append([]string{"b"}, heavy...) {
		database.Exec(t, "INSERT INTO business VALUES (?, 0)", name)
	}
	add := func(ctx context.Context, tx *sql.Tx, names ...string) (err error) {
		for _, name := range names {
			_, addErr := tx.ExecContext(ctx, "UPDATE business SET n = n + 1 WHERE name = ?", name)
			err = errors.Join(err, addErr)
		}
		return err
	}
	for _, ignored := range []bool{false, true} {
		other, err := database.DB.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, add(t.Context(), other, heavy...))
		mine, err := database.DB.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, add(t.Context(), mine, "b"))
		ended := make(chan error, 1)
		_, err = store.Once(postbox.ContextWithTx(t.Context(), mine), key, func(ctx context.Context) error {
			// One of the two is the second that waits, and closes the circle. The server chooses by
			// what they have changed, not by their order.
			go func() { ended <- add(context.WithoutCancel(ctx), other, "b") }()
			err := add(ctx, mine, "a")
			if ignored && err != nil {
				return errHandler
			}
			return err
		})
		require.NoError(t, <-ended)
		require.NoError(t, other.Rollback())
		require.NoError(t, mine.Rollback())
		if ignored {
			require.ErrorIs(t, err, errHandler)
			require.ErrorContains(t, err, "SAVEPOINT")
			continue
		}
		require.Equal(t, dialect.Conflict, dialect.MySQL.Classify(err), "%v", err)
		require.NotContains(t, err.Error(), "SAVEPOINT")
		require.NotContains(t, err.Error(), "\n", "it is one error")
	}
}

// The connection of a transaction is lost, so the database has rolled it back, and nothing has to
// go back to a savepoint.
func TestStore_within_a_transaction_whose_connection_is_lost(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		db, gate := database.OpenGated(t)
		store := inboxtest.StoreFor(t, database, db, nil)
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		_, err = store.Once(postbox.ContextWithTx(t.Context(), tx), key, func(context.Context) error {
			gate.Shut()
			return errHandler
		})
		var failure *inboxstore.HandlerError
		require.ErrorAs(t, err, &failure)
		require.Equal(t, errHandler, failure.Err)
		require.NotContains(t, err.Error(), "\n", "it is one error")
	})
}
