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
)

// Without a router: a handler of a queue whose writes, returned messages and end commit together.
func TestProcess_G4_returned_messages_commit_with_the_end_of_the_message(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		database.Exec(t, "CREATE TABLE effects (id VARCHAR(100))")
		store, err := inboxstore.New(database.DB, inboxstore.Config{Dialect: database.Dialect}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { _ = store.Close() })
		outbox, err := forwarder.NewPublisher(database.DB, forwarder.PublisherConfig{Dialect: database.Dialect}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { _ = outbox.Close() })
		subscriber, err := inboxstore.NewSubscriber(store, inboxstore.QueueConfig{
			Transactional: true, Retry: postbox.RetryProfile{Base: time.Millisecond, Cap: time.Millisecond},
		}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { _ = subscriber.Close() })
		_, err = store.Defer(t.Context(), "payments", inboxstore.Key{MessageID: "1"}, message.NewMessage("1", nil))
		require.NoError(t, err)
		received, err := subscriber.Subscribe(t.Context(), "payments")
		require.NoError(t, err)

		failures := 0
		process := middleware.Process{Outbox: outbox, PublishTopic: "receipts"}.Middleware(handler(func() error {
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

// At its first message it would be too late: each delivery would be an attempt of a message that nothing is wrong with.
func TestProcess_an_outbox_that_is_none_is_refused_before_any_message(t *testing.T) {
	t.Parallel()
	outbox, err := forwarder.NewPublisher(testdb.SQLite(t).DB, forwarder.PublisherConfig{Dialect: postbox.SQLite}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = outbox.Close() })
	for want, publisher := range map[string]message.Publisher{
		"middleware.Process: Outbox: a *gochannel.GoChannel publishes at once": gochannel.NewGoChannel(gochannel.Config{}, nil),
		"decorated by forwarder.Decorate":                                      struct{ message.Publisher }{outbox},
		"middleware.Process: Outbox: it is a nil *forwarder.Publisher":         (*forwarder.Publisher)(nil),
	} {
		process := middleware.Process{Outbox: publisher, PublishTopic: "receipts"}
		require.ErrorContains(t, process.Validate(), want)
		require.PanicsWithError(t, process.Validate().Error(), func() { process.Middleware(handler(succeed)) })
	}
	decorated, err := forwarder.Decorate(outbox)
	require.NoError(t, err)
	for _, publisher := range []message.Publisher{nil, outbox, forwarder.KeepOpen(outbox), decorated} {
		process := middleware.Process{Outbox: publisher}
		require.NoError(t, process.Validate())
		require.NotPanics(t, func() { process.Middleware(handler(succeed)) })
	}
}
