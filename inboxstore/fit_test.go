package inboxstore_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

func TestStore_names_the_right_dialect(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		for _, dialect := range []postbox.Dialect{postbox.PostgreSQL, postbox.MySQL, postbox.SQLite} {
			if dialect == database.Dialect {
				continue
			}
			_, err := inboxstore.New(database.DB, inboxstore.Config{Dialect: dialect}, nil)
			require.ErrorContains(t, err, "set Dialect to postbox.")

			store, err := inboxstore.New(database.OpenWrapped(t), inboxstore.Config{Dialect: dialect}, nil)
			require.NoError(t, err, "the driver is not known")
			refuses(t, store, "set Dialect to postbox.")
			require.NoError(t, store.Close())
		}
	})
}

// A message would be stored in a transaction that nobody commits, and acked.
func TestStore_G5_refuses_sessions_that_do_not_commit_by_themselves(t *testing.T) {
	t.Parallel()
	database := testdb.MySQL(t).Migrate(t)
	store, err := inboxstore.New(database.OpenWith(t, "autocommit=0"), inboxstore.Config{Dialect: postbox.MySQL}, nil)
	require.NoError(t, err)
	refuses(t, store, "autocommit = 0")
	require.NoError(t, store.Close())
}

func refuses(t *testing.T, store *inboxstore.Store, want string) {
	t.Helper()
	key := inboxstore.Key{Consumer: "c", Topic: "orders", MessageID: "a"}
	_, err := store.Once(t.Context(), key, func(context.Context) error { return nil })
	require.ErrorContains(t, err, want)
	_, err = store.Defer(t.Context(), "queue", key, message.NewMessage("a", nil))
	require.ErrorContains(t, err, want)
}

func TestStore_errors_quote_little_of_a_long_id(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t).Migrate(t)
	store, err := inboxstore.New(database.DB, inboxstore.Config{Dialect: postbox.SQLite, MaxPayload: 1}, nil)
	require.NoError(t, err)
	long := strings.Repeat("x", 1<<20)
	_, err = store.Defer(t.Context(), "queue", inboxstore.Key{Consumer: "c", Topic: "orders", MessageID: long}, message.NewMessage(long, []byte("ten bytes!")))
	require.ErrorContains(t, err, "MaxPayload is 1")
	require.Less(t, len(err.Error()), 1000)
	require.NoError(t, store.Close())
}
