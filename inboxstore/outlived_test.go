package inboxstore_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// tooEarly is a handler that returns while InTx within it, in another goroutine, has written one of
// two effects. The function lets that write the second one.
func tooEarly(t *testing.T, db *sql.DB) (handler func(ctx context.Context) error, end func() error) {
	t.Helper()
	begun, returned, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	handler = func(ctx context.Context) error {
		go func() {
			ended <- postbox.InTx(ctx, db, func(ctx context.Context, tx *sql.Tx) error {
				if err := effect(t, nil)(ctx); err != nil {
					return err
				}
				close(begun)
				<-returned
				_, err := tx.ExecContext(context.WithoutCancel(ctx), "INSERT INTO effects VALUES ('x')")
				return err
			})
		}()
		<-begun
		return nil
	}
	return handler, func() error {
		close(returned)
		return <-ended
	}
}

func TestStore_G4_a_handler_that_returns_before_a_nested_InTx_has_failed(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		withEffects(t, database)
		store := inboxtest.StoreFor(t, database, database.DB, nil)
		handler, end := tooEarly(t, database.DB)
		fresh, err := store.Once(t.Context(), key, handler)
		inner := end()
		var failure *inboxstore.HandlerError
		require.ErrorAs(t, err, &failure)
		require.ErrorContains(t, err, "wait for that goroutine before you return")
		require.False(t, fresh)
		require.Error(t, inner)
		require.Zero(t, effects(t, database))

		// The owner of the transaction around the inbox does not commit half of it either.
		handler, end = tooEarly(t, database.DB)
		around := postbox.InTx(t.Context(), database.DB, func(ctx context.Context, _ *sql.Tx) error {
			_, err = store.Once(ctx, key, handler)
			inner = end()
			return nil
		})
		require.ErrorContains(t, err, "wait for that goroutine before you return")
		require.Error(t, inner)
		require.Error(t, around)
		require.Zero(t, effects(t, database))

		fresh, err = store.Once(t.Context(), key, effect(t, nil))
		require.NoError(t, err)
		require.True(t, fresh)
		require.Equal(t, 1, effects(t, database))
	})
}

// The inbox is what was left behind.
func TestStore_G4_a_handler_that_a_returned_function_left_behind_has_failed(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		withEffects(t, database)
		store := inboxtest.StoreFor(t, database, database.DB, nil)
		begun, returned, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		err := postbox.InTx(t.Context(), database.DB, func(ctx context.Context, _ *sql.Tx) error {
			go func() {
				_, err := store.Once(ctx, key, func(ctx context.Context) error {
					err := effect(t, nil)(ctx)
					close(begun)
					<-returned
					return err
				})
				ended <- err
			}()
			<-begun
			return nil
		})
		close(returned)
		require.ErrorContains(t, err, "wait for that goroutine before you return")
		require.Error(t, <-ended)
		require.Zero(t, effects(t, database))

		var left context.Context
		rolledBack := postbox.InTx(t.Context(), database.DB, func(ctx context.Context, _ *sql.Tx) error {
			left = ctx
			return inboxtest.ErrHandler
		})
		require.ErrorIs(t, rolledBack, inboxtest.ErrHandler)
		another := inboxstore.Key{Consumer: "billing", Topic: "orders", MessageID: "2"}
		_, err = store.Once(left, another, effect(t, nil))
		require.ErrorIs(t, err, postbox.ErrNoTransaction)
		_, err = store.RecordFailure(left, another, inboxtest.ErrHandler)
		require.ErrorIs(t, err, postbox.ErrNoTransaction)
		_, err = store.Defer(left, "queue", another, inboxtest.Keyed("2"))
		require.ErrorIs(t, err, postbox.ErrNoTransaction)
	})
}
