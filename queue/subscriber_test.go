package queue_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// Also covers G3.
func TestSubscriber_G5_stores_messages_once_and_handles_them_in_the_order_of_their_key(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		store := inboxtest.StoreFor(t, database, database.DB, nil)
		const messages = 60
		for i := range messages {
			msg := message.NewMessage(fmt.Sprintf("%03d", i), nil)
			msg.Metadata.Set(postbox.MetadataOrderingKey, fmt.Sprint(i%3))
			for copies := range 2 {
				fresh, err := store.Defer(t.Context(), "fraud", inboxstore.Key{Consumer: "c", MessageID: msg.UUID}, msg)
				require.NoError(t, err)
				require.Equal(t, copies == 0, fresh)
			}
		}
		require.Equal(t, messages, database.Count(t, "SELECT COUNT(*) FROM postbox_messages"))

		received, err := inboxtest.SubscriberFor(t, store).Subscribe(t.Context(), "fraud")
		require.NoError(t, err)
		var mu sync.Mutex
		handled, nacked := map[string][]string{}, map[string]bool{}
		for range messages + 6 {
			msg := <-received
			mu.Lock()
			if i := msg.UUID; !nacked[i] && len(nacked) < 6 && i[2] == '7' { // fails once: its key waits
				nacked[i] = true
				msg.Nack()
			} else {
				key := msg.Metadata.Get(postbox.MetadataOrderingKey)
				handled[key] = append(handled[key], msg.UUID)
				msg.Ack()
			}
			mu.Unlock()
		}
		for key, ids := range handled {
			require.Len(t, ids, messages/3)
			require.True(t, slices.IsSorted(ids), "key %s: %v", key, ids)
		}
		require.Eventually(t, func() bool {
			return database.Count(t, "SELECT COUNT(*) FROM postbox_messages") == 0
		}, 10*time.Second, time.Millisecond)
	})
}

func TestSubscriber_G12_close_leaves_what_was_not_acked(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t).Migrate(t)
	store := inboxtest.StoreFor(t, database, database.DB, func(c *inboxstore.Config) { c.CloseTimeout = 50 * time.Millisecond })
	for i := range 5 {
		_, err := store.Defer(t.Context(), "q", inboxstore.Key{Consumer: "c", MessageID: fmt.Sprint(i)}, message.NewMessage(fmt.Sprint(i), nil))
		require.NoError(t, err)
	}
	subscriber := inboxtest.SubscriberFor(t, store)
	received, err := subscriber.Subscribe(context.Background(), "q")
	require.NoError(t, err)
	(<-received).Ack()
	<-received // never acked
	require.NoError(t, subscriber.Close())
	require.NoError(t, subscriber.Close())
	_, open := <-received
	require.False(t, open)
	require.Equal(t, 4, database.Count(t, "SELECT COUNT(*) FROM postbox_messages WHERE attempts = 0"))
	_, err = subscriber.Subscribe(t.Context(), "q")
	require.ErrorIs(t, err, postbox.ErrClosed)
}
