package inboxstore_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// The number of the queue is that of an outbox there, whose forwarder would publish what was
// deferred; a claim there would be found by no other delivery.
func TestStore_G4_refuses_a_transaction_of_another_database(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) *testdb.Database{"sqlite": testdb.SQLite, "postgres-pq": testdb.Postgres, "mariadb": testdb.MySQL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ours, theirs := withEffects(t, open(t)), withEffects(t, open(t))
			store := inboxtest.StoreFor(t, ours, ours.DB, nil)
			deferred := func(ctx context.Context, id string) error {
				_, err := store.Defer(ctx, "jobs", inboxstore.Key{Consumer: "jobs", Topic: "t", MessageID: id}, message.NewMessage(id, nil))
				return err
			}
			once := func(ctx context.Context, id string) error {
				_, err := store.Once(ctx, inboxstore.Key{Consumer: "once", Topic: "t", MessageID: id}, func(context.Context) error { return nil })
				return err
			}
			record := func(ctx context.Context, id string) error {
				_, err := store.RecordFailure(ctx, inboxstore.Key{Consumer: "once", Topic: "t", MessageID: id}, inboxtest.ErrHandler)
				return err
			}
			in := func(db *sql.DB, work func(ctx context.Context, id string) error, id string) error {
				return postbox.InTx(t.Context(), db, func(ctx context.Context, _ *sql.Tx) error { return work(ctx, id) })
			}
			for name, work := range map[string]func(ctx context.Context, id string) error{"Defer": deferred, "Once": once, "RecordFailure": record} {
				require.ErrorContains(t, in(theirs.DB, work, "1"), "not in the same database", name)
				require.NoError(t, in(ours.Open(t), work, "2"), "%s, on another handle", name)
				require.NoError(t, in(ours.DB, work, "3"), "%s, on the same handle", name)
			}
			for table, rows := range map[string]int{"postbox_messages": 2, "postbox_claims": 4, "postbox_failures": 2} {
				require.Equal(t, rows, ours.Count(t, "SELECT COUNT(*) FROM "+table), table)
				require.Zero(t, theirs.Count(t, "SELECT COUNT(*) FROM "+table), table)
			}
		})
	}
}

// Each database has its own claim, also if both inboxes name the message alike.
func TestStore_G4_refuses_the_transaction_of_the_same_key_in_another_database(t *testing.T) {
	t.Parallel()
	ours, theirs := testdb.Postgres(t), testdb.Postgres(t)
	key := inboxstore.Key{Consumer: "billing", Topic: "t", MessageID: "1"}
	inner := inboxtest.StoreFor(t, ours.Migrate(t), ours.DB, nil)
	_, err := inboxtest.StoreFor(t, theirs.Migrate(t), theirs.DB, nil).Once(t.Context(), key, func(ctx context.Context) error {
		_, err := inner.Once(ctx, key, func(context.Context) error { return nil })
		return err
	})
	require.ErrorContains(t, err, "not in the same database")
}

// On SQLite the cleanup waits, with the only connection of the store, for the transaction that is
// to be checked.
func TestStore_G4_accepts_a_transaction_of_another_handle_while_its_cleanup_waits_for_it(t *testing.T) {
	t.Parallel()
	database := withEffects(t, testdb.SQLite(t))
	own := database.Open(t)
	store := inboxtest.StoreFor(t, database, own, nil)
	held, err := own.Conn(t.Context())
	require.NoError(t, err)
	tx, err := database.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	ctx := postbox.ContextWithTx(t.Context(), tx)

	noConnection, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	_, err = deferred(noConnection, store, "before")
	require.ErrorIs(t, err, context.DeadlineExceeded, "it starts the cleanup")
	require.Eventually(t, func() bool { return own.Stats().WaitCount >= 1 }, inboxtest.Patience, time.Millisecond)
	require.NoError(t, held.Close())
	require.Eventually(t, func() bool { return own.Stats().InUse == 1 }, inboxtest.Patience, time.Millisecond, "the cleanup has the connection")

	fresh, err := deferred(ctx, store, "after")
	require.NoError(t, err)
	require.True(t, fresh)
}

// The first transaction of the store waits, with its only connection, for the transaction that is
// to be checked.
func TestStore_G4_takes_a_transaction_of_another_handle_while_its_first_one_waits_for_that(t *testing.T) {
	t.Parallel()
	database := withEffects(t, testdb.SQLite(t))
	own := database.Open(t)
	store := inboxtest.StoreFor(t, database, own, nil)
	tx, err := database.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	once := func(ctx context.Context, id string) (bool, error) {
		return store.Once(ctx, inboxstore.Key{Consumer: "c", Topic: "t", MessageID: id}, func(context.Context) error { return nil })
	}
	ended := make(chan error, 1)
	go func() {
		_, err := once(t.Context(), "alone")
		ended <- err
	}()
	require.Eventually(t, func() bool { return own.Stats().InUse == 1 }, inboxtest.Patience, time.Millisecond)

	fresh, err := once(postbox.ContextWithTx(t.Context(), tx), "joined")
	require.NoError(t, err)
	require.True(t, fresh)
	require.NoError(t, tx.Commit())
	require.NoError(t, <-ended)
}

func TestStore_G12_a_duplicate_that_comes_after_the_end_is_no_panic(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		store := inboxtest.StoreFor(t, database, database.DB, func(c *inboxstore.Config) { c.CacheSize = 0 })
		key := inboxstore.Key{Consumer: "c", Topic: "t", MessageID: "1"}
		once := func() (bool, error) { return store.Once(t.Context(), key, func(context.Context) error { return nil }) }
		fresh, err := once()
		require.NoError(t, err)
		require.True(t, fresh)
		require.NoError(t, store.Close())
		fresh, err = once()
		require.NoError(t, err)
		require.False(t, fresh)
	})
}
