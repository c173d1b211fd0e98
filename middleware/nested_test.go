package middleware_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"
	watermill "github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/middleware"
)

func TestInbox_of_a_router_and_again_of_its_handler_loses_nothing(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.DB.SetMaxOpenConns(1) // G10
		inbox := inboxFor(t, database, func(c *middleware.InboxConfig) { c.Consumer, c.Topic = "", "" })
		channel := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, nil)
		startRouter(t, func(router *message.Router) {
			router.AddMiddleware(inbox.Middleware)
			router.AddHandler("billing", "orders", channel, "receipts", channel, handler(succeed)).AddMiddleware(inbox.Middleware)
		})
		for range 2 { // delivered twice
			for _, id := range []string{"1", "2", "3"} {
				require.NoError(t, channel.Publish("orders", message.NewMessage(id, nil)))
			}
		}
		effects, receipts, dead := counts(t, database)
		require.Equal(t, []int{3, 3, 0}, []int{effects, receipts, dead})
		require.Equal(t, 3, database.Count(t, "SELECT COUNT(*) FROM postbox_claims"))
	})
}

func TestInbox_within_itself_counts_each_failure_once(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		inbox := inboxFor(t, database, nil) // with 3 attempts
		calls := 0
		h := inbox.Middleware(inbox.Middleware(inbox.Middleware(handler(func() error { calls++; return errHandler }))))
		for attempt := 1; attempt <= 4; attempt++ {
			_, err := h(message.NewMessage("1", nil))
			require.Equal(t, attempt < 3, err != nil, "attempt %d: the last one is acked", attempt)
		}
		require.Equal(t, 3, calls)
		effects, receipts, dead := counts(t, database)
		require.Equal(t, []int{0, 0, 1}, []int{effects, receipts, dead})
		require.Equal(t, 3, database.Count(t, "SELECT COUNT(*) FROM postbox_failures"))
	})
}

// What the inner one has written belongs to the outer one, which must not commit it where something
// between them drops the error.
func TestInbox_within_itself_commits_nothing_if_a_failure_is_swallowed_in_between(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	inbox := inboxFor(t, database, nil)
	ignore := watermill.NewIgnoreErrors([]error{errHandler}).Middleware
	_, err := inbox.Middleware(ignore(inbox.Middleware(handler(func() error { return errHandler }))))(message.NewMessage("1", nil))
	require.ErrorIs(t, err, errHandler)
	effects, receipts, _ := counts(t, database)
	require.Zero(t, effects+receipts)
}

// Consumers of different names each have their effect, in one transaction.
func TestInbox_within_one_of_another_consumer_has_its_own_claim(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		outer := inboxFor(t, database, nil)
		database.Exec(t, "CREATE TABLE calls (id VARCHAR(10))")
		inner := innerInbox(t, database)
		h := outer.Middleware(inner.Middleware(outer.Middleware(inner.Middleware(func(msg *message.Message) ([]*message.Message, error) {
			tx, _ := postbox.TxFromContext(msg.Context())
			_, err := tx.ExecContext(postbox.ContextWithTx(msg.Context(), tx), "INSERT INTO calls VALUES ('x')")
			return nil, err
		}))))
		for range 2 {
			_, err := h(message.NewMessage("1", nil))
			require.NoError(t, err)
		}
		require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM calls"))
		require.Equal(t, 2, database.Count(t, "SELECT COUNT(*) FROM postbox_claims"))
	})
}

func innerInbox(t *testing.T, database *testdb.Database) *middleware.Inbox {
	t.Helper()
	store, err := inboxstore.New(database.Postbox(), inboxstore.Config{}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = store.Close() })
	inbox, err := middleware.NewInbox(store, middleware.InboxConfig{Consumer: "inner", Topic: "orders"}, nil)
	require.NoError(t, err)
	return inbox
}
