package postboxtest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/postboxtest"
	"github.com/postbox-go/watermill-postbox/queue"
)

func kitFor(t *testing.T, database *testdb.Database) *postboxtest.Kit {
	t.Helper()
	return postboxtest.New(t, database.On(database.Migrate(t).DB))
}

func ids(messages []*message.Message) []string {
	var list []string
	for _, msg := range messages {
		list = append(list, msg.UUID)
	}
	return list
}

// Covers feature W12.
func TestKit_shows_published_messages_and_advances_the_time(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		kit := kitFor(t, database)
		publisher, err := forwarder.NewPublisher(database.Postbox(), forwarder.PublisherConfig{}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { _ = publisher.Close() })
		later := message.NewMessage("later", nil)
		delay.Message(later, delay.For(time.Hour))
		require.NoError(t, postbox.InTx(t.Context(), database.DB, func(ctx context.Context, _ *sql.Tx) error {
			for i := range 3 {
				msg := message.NewMessage(fmt.Sprint(i), nil)
				msg.Metadata.Set(postbox.MetadataOrderingKey, "k")
				msg.SetContext(ctx)
				if err := publisher.Publish("orders", msg); err != nil {
					return err
				}
			}
			later.SetContext(ctx)
			return publisher.Publish("orders", later)
		}))
		require.Equal(t, []string{"0", "1", "2"}, ids(kit.Published("orders")))
		require.Empty(t, kit.Published("receipts"))
		kit.Advance(59 * time.Minute)
		require.Len(t, kit.Published("orders"), 3)
		kit.Advance(2 * time.Minute)
		require.Equal(t, []string{"0", "1", "2", "later"}, ids(kit.Published("orders")))
	})
}

// A message with a unique key still waits when time has passed.
func TestKit_advances_the_time_of_unique_keys(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		kit := kitFor(t, database)
		publisher, err := forwarder.NewPublisher(database.Postbox(), forwarder.PublisherConfig{}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { _ = publisher.Close() })
		publish := func(id string) {
			msg := postbox.ReplaceWaiting(message.NewMessage(id, nil), "statement of customer 7")
			delay.Message(msg, delay.For(10*time.Second))
			require.NoError(t, postbox.InTx(t.Context(), database.DB, func(ctx context.Context, _ *sql.Tx) error {
				msg.SetContext(ctx)
				return publisher.Publish("statements", msg)
			}))
		}
		publish("first")
		kit.Advance(5 * time.Second)
		publish("second")
		kit.Advance(11 * time.Second)
		require.Equal(t, []string{"second"}, ids(kit.Published("statements")))
	})
}

// Covers feature W12.
func TestKit_drains_a_queue_and_lets_time_pass(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		kit := kitFor(t, database)
		store, err := inboxstore.New(database.Postbox(), inboxstore.Config{}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { _ = store.Close() })
		for i := range 6 {
			msg := message.NewMessage(fmt.Sprint(i), nil)
			msg.Metadata.Set(postbox.MetadataOrderingKey, fmt.Sprint(i%2))
			_, err := store.Defer(t.Context(), "fraud", inboxstore.Key{MessageID: msg.UUID}, msg)
			require.NoError(t, err)
		}
		var handled []string
		config := queue.Config{Concurrency: 1, Retry: postbox.RetryProfile{Attempts: 2, Base: time.Hour, Cap: time.Hour}}
		handler := func(msg *message.Message) error {
			if msg.UUID == "2" {
				return errors.New("the bank does not answer")
			}
			handled = append(handled, msg.UUID)
			return nil
		}
		require.Equal(t, 5, kit.Drain("fraud", config, handler), "4 waits behind 2")
		slices.Sort(handled)
		require.Equal(t, []string{"0", "1", "3", "5"}, handled)
		require.Zero(t, kit.Drain("fraud", config, handler))
		require.Empty(t, kit.DeadLetters())

		kit.Advance(time.Hour)
		require.Equal(t, 2, kit.Drain("fraud", config, handler))
		require.Contains(t, handled, "4")
		letters := kit.DeadLetters()
		require.Len(t, letters, 1)
		require.Equal(t, "2", letters[0].MessageID)
		require.Len(t, letters[0].Failures, 2)
		require.Equal(t, "the bank does not answer", letters[0].Failures[0].Error)
	})
}

func TestKit_single_mode_passes_waiting_messages(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	kit := kitFor(t, database)
	store, err := inboxstore.New(database.Postbox(), inboxstore.Config{}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = store.Close() })
	for i := range 3 {
		msg := message.NewMessage(fmt.Sprint(i), nil)
		msg.Metadata.Set(postbox.MetadataOrderingKey, "k")
		_, err := store.Defer(t.Context(), "fraud", inboxstore.Key{MessageID: msg.UUID}, msg)
		require.NoError(t, err)
	}
	config := queue.Config{
		Unordered: true, Concurrency: 1, Retry: postbox.RetryProfile{Base: time.Hour, Cap: time.Hour, Jitter: -1},
	}
	require.Equal(t, 3, kit.Drain("fraud", config, func(msg *message.Message) error {
		if msg.UUID == "0" {
			return errors.New("no")
		}
		return nil
	}))
}
