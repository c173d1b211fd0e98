package middleware_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/middleware"
)

const sharedConsumer = "Postbox found two handlers with the same consumer on one topic"

// Whether the two are a mistake, or share the messages of a topic on purpose, only the user knows:
// so it is said, and nothing more.
func TestInbox_two_handlers_with_one_consumer_are_logged_once(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		inboxFor(t, database, nil) // which makes the tables
		logger := watermill.NewCaptureLogger()
		store, err := inboxstore.New(database.Postbox(), inboxstore.Config{}, logger)
		require.NoError(t, err)
		t.Cleanup(func() { _ = store.Close() })
		channel := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, nil)
		startRouter(t, func(router *message.Router) {
			for _, name := range []string{"one", "two"} {
				inbox, err := middleware.NewInbox(store, middleware.InboxConfig{Consumer: "billing"}, nil)
				require.NoError(t, err)
				router.AddConsumerHandler(name, "orders", channel, func(*message.Message) error { return nil }).AddMiddleware(inbox.Middleware)
			}
			for _, name := range []string{"three", "four"} { // each its own consumer
				inbox, err := middleware.NewInbox(store, middleware.InboxConfig{}, nil)
				require.NoError(t, err)
				router.AddConsumerHandler(name, "orders", channel, func(*message.Message) error { return nil }).AddMiddleware(inbox.Middleware)
			}
		})
		for i := range 10 {
			require.NoError(t, channel.Publish("orders", message.NewMessage(fmt.Sprint(i), nil)))
		}
		said := func() (lines []watermill.CapturedMessage) {
			for _, line := range logger.Captured()[watermill.ErrorLogLevel] {
				if line.Msg == sharedConsumer {
					lines = append(lines, line)
				}
			}
			return lines
		}
		require.Eventually(t, func() bool { return len(said()) > 0 }, patience, time.Millisecond)
		require.Len(t, said(), 1)
		require.ErrorContains(t, said()[0].Err, "give each handler its own InboxConfig.Consumer")
		require.Equal(t, "billing", said()[0].Fields["consumer"])
		require.ElementsMatch(t, []any{"one", "two"}, []any{said()[0].Fields["handler"], said()[0].Fields["other_handler"]})
	})
}
