package inboxstore_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

func TestStore_refuses_the_wrong_dialect_and_names_the_right_one(t *testing.T) {
	t.Parallel()
	names := map[postbox.Dialect]string{postbox.PostgreSQL: "PostgreSQL", postbox.MySQL: "MySQL", postbox.SQLite: "SQLite"}
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		want := "set Dialect to postbox." + names[database.Dialect]
		for dialect := range names {
			if dialect == database.Dialect {
				continue
			}
			_, err := inboxstore.New(postbox.Database{DB: database.DB, Dialect: dialect}, inboxstore.Config{}, nil)
			require.ErrorContains(t, err, want)

			store, err := inboxstore.New(postbox.Database{DB: database.OpenWrapped(t), Dialect: dialect}, inboxstore.Config{}, nil)
			require.NoError(t, err, "the driver is not known")
			refuses(t, store, want)
			require.NoError(t, store.Close())
		}
	})
}

// A message would be stored in a transaction that is never committed, and acked.
func TestStore_G5_refuses_sessions_that_do_not_commit_by_themselves(t *testing.T) {
	t.Parallel()
	database := testdb.MySQL(t).Migrate(t)
	store, err := inboxstore.New(postbox.Database{DB: database.OpenWith(t, "autocommit=0"), Dialect: postbox.MySQL}, inboxstore.Config{}, nil)
	require.NoError(t, err)
	refuses(t, store, "autocommit = 0")
	require.NoError(t, store.Close())
}

func TestStore_refuses_a_driver_that_hides_the_BeginTx_of_another_one(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		store, err := inboxstore.New(database.On(database.OpenUnknown(t)), inboxstore.Config{}, nil)
		require.NoError(t, err)
		refuses(t, store, "hides BeginTx")
		require.NoError(t, store.Close())
	})
}

func refuses(t *testing.T, store *inboxstore.Store, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	key := inboxstore.Key{Consumer: "c", Topic: "orders", MessageID: "a"}
	_, err := store.Once(ctx, key, func(context.Context) error { return nil })
	require.ErrorContains(t, err, want)
	_, err = store.Defer(ctx, "queue", key, message.NewMessage("a", nil))
	require.ErrorContains(t, err, want)
}

// An error goes into logs and failure records, and what it quotes came from others.
func TestStore_errors_shorten_what_they_quote(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t).Migrate(t)
	store, err := inboxstore.New(postbox.Database{DB: database.DB, Dialect: postbox.SQLite}, inboxstore.Config{MaxPayload: 1}, nil)
	require.NoError(t, err)
	long := strings.Repeat("x", 1<<20)
	_, err = store.Defer(t.Context(), "queue", inboxstore.Key{Consumer: "c", Topic: "orders", MessageID: long}, message.NewMessage(long, []byte("ten bytes!")))
	require.ErrorContains(t, err, "MaxPayload is 1")
	require.Less(t, len(err.Error()), 1000)
	_, err = store.Defer(t.Context(), long, inboxstore.Key{Consumer: "c", Topic: "orders", MessageID: "a"}, message.NewMessage("a", nil))
	require.Error(t, err)
	require.Less(t, len(err.Error()), 1000)
	require.NoError(t, store.Close())
}
