package middleware_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/middleware"
	"github.com/postbox-go/watermill-postbox/queue"
)

// Without a router: a handler of a queue whose writes, returned messages and end commit together.
func TestProcess_G4_returned_messages_commit_with_the_end_of_the_message(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		database.Exec(t, "CREATE TABLE effects (id VARCHAR(100))")
		store, err := inboxstore.New(database.Postbox(), inboxstore.Config{}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { _ = store.Close() })
		outbox, err := forwarder.NewPublisher(database.Postbox(), forwarder.PublisherConfig{}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { _ = outbox.Close() })
		subscriber, err := queue.NewSubscriber(store, queue.Config{
			Transactional: true, Retry: postbox.RetryProfile{Base: time.Millisecond, Cap: time.Millisecond},
		}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { _ = subscriber.Close() })
		_, err = store.Defer(t.Context(), "payments", inboxstore.Key{MessageID: "1"}, message.NewMessage("1", nil))
		require.NoError(t, err)
		received, err := subscriber.Subscribe(t.Context(), "payments")
		require.NoError(t, err)

		failures := 0
		emitting, err := middleware.ProcessWith(middleware.ProcessConfig{Outbox: outbox, PublishTopic: "receipts"})
		require.NoError(t, err)
		process := emitting(handler(func() error {
			if failures++; failures <= 2 {
				return errHandler
			}
			return nil
		}))
		for range 3 {
			msg := <-received
			produced, err := process(msg)
			require.Empty(t, produced, "the router has nothing to publish")
			if err != nil {
				require.ErrorIs(t, err, errHandler)
				msg.Nack()
			} else {
				msg.Ack()
			}
		}
		require.Eventually(t, func() bool {
			return database.Count(t, "SELECT COUNT(*) FROM postbox_messages WHERE topic = 'payments'") == 0
		}, patience, 2*time.Millisecond)
		effects, receipts, dead := counts(t, database)
		require.Equal(t, []int{1, 1, 0}, []int{effects, receipts, dead})
		require.Equal(t, 2, database.Count(t, "SELECT COUNT(*) FROM postbox_failures WHERE error = ?", errHandler.Error()))
	})
}

func TestProcess_refuses_an_outbox_that_is_a_brokers_publisher(t *testing.T) {
	t.Parallel()
	_, err := middleware.ProcessWith(middleware.ProcessConfig{Outbox: gochannel.NewGoChannel(gochannel.Config{}, nil), PublishTopic: "receipts"})
	require.ErrorContains(t, err, "Outbox: a *gochannel.GoChannel publishes immediately")
	_, err = middleware.ProcessWith(middleware.ProcessConfig{PublishTopic: "receipts"})
	require.ErrorContains(t, err, "Outbox: is nil")

	_, err = middleware.Process(func(*message.Message) ([]*message.Message, error) {
		return message.Messages{message.NewMessage("2", nil)}, nil
	})(message.NewMessage("1", nil))
	require.ErrorContains(t, err, "configure an Outbox")
}
