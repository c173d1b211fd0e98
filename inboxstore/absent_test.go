package inboxstore_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/queue"
)

func TestStore_without_tables_says_what_to_call(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		store, err := inboxstore.New(database.Postbox(), inboxstore.Config{}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { _ = store.Close() })
		key := inboxstore.Key{Consumer: "billing", Topic: "orders", MessageID: "1"}
		for range 2 {
			_, err = store.Once(t.Context(), key, func(context.Context) error { t.Error("it runs"); return nil })
			require.ErrorIs(t, err, spool.ErrNoTables)
			require.ErrorContains(t, err, "postbox_claims: the tables are missing or of another version, call postbox.Migrate first")
			var failure *inboxstore.HandlerError
			require.NotErrorAs(t, err, &failure, "no attempt counts")
		}
		tx, err := database.DB.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		_, err = store.Once(postbox.ContextWithTx(t.Context(), tx), key, func(context.Context) error { t.Error("it runs"); return nil })
		require.ErrorIs(t, err, spool.ErrNoTables)
		require.NoError(t, tx.Rollback())

		_, err = store.Defer(t.Context(), "fraud", key, message.NewMessage("1", nil))
		require.ErrorIs(t, err, spool.ErrNoTables)
		subscriber, err := queue.NewSubscriber(store, queue.Config{}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { _ = subscriber.Close() })
		require.ErrorIs(t, subscriber.SubscribeInitialize("fraud"), spool.ErrNoTables)
	})
}

// A queue without a name would take messages for which there can be no subscriber; on MySQL a long
// name would be cut off.
func TestStore_refuses_invalid_queue_names_in_each_function(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t).Migrate(t)
	store := inboxtest.StoreFor(t, database, database.DB, nil)
	longest := strings.Repeat("q", 249)
	subscriber, err := queue.NewSubscriber(store, queue.Config{}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = subscriber.Close() })
	for name, want := range map[string]string{
		"": "the queue has no name", longest + "q": "use at most 249 bytes", strings.Repeat("q", 300): "use at most 249 bytes", "q\x00": "without NUL",
	} {
		_, err := store.Defer(t.Context(), name, inboxstore.Key{MessageID: "1"}, message.NewMessage("1", nil))
		require.ErrorContains(t, err, want)
		_, err = subscriber.Subscribe(t.Context(), name)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, subscriber.SubscribeInitialize(name), want)
		_, err = queue.NewBatch(store, name, func(context.Context, []*message.Message) error { return nil }, queue.BatchConfig{}, nil)
		require.ErrorContains(t, err, want)
	}
	_, err = store.Defer(t.Context(), longest, inboxstore.Key{MessageID: "1"}, message.NewMessage("1", nil))
	require.NoError(t, err)
	require.NoError(t, subscriber.SubscribeInitialize(longest))
}
