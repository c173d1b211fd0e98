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

func TestStore_returns_an_error_that_panics_as_an_error_of_the_handler(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		store := inboxtest.StoreFor(t, database, database.DB, nil)
		once := func(ctx context.Context, id string) {
			fresh, err := store.Once(ctx, inboxstore.Key{Consumer: "c", MessageID: id}, func(context.Context) error { return inboxtest.EvilErrors[id] })
			require.False(t, fresh)
			var ofHandler *inboxstore.HandlerError
			require.ErrorAs(t, err, &ofHandler, id)
			require.NotEmpty(t, err.Error())
		}
		for id := range inboxtest.EvilErrors {
			once(t.Context(), id)
		}
		tx, err := database.DB.BeginTx(t.Context(), &sql.TxOptions{})
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		for id := range inboxtest.EvilErrors {
			once(postbox.ContextWithTx(t.Context(), tx), id)
		}
	})
}
