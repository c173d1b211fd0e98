package middleware_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/middleware"
)

// The subscriber of watermill-sql v4 puts its transaction into the context under a key of its own,
// in a wrapper of its own, and the router calls it sql.Subscriber. This one does too; that of v4
// itself is in the module proof/publishers.
type consuming struct {
	message.Subscriber
	db *sql.DB
}

func (consuming) String() string { return "sql.Subscriber" }

type (
	consumingKey struct{}
	wrappedTx    struct{ *sql.Tx }
	anotherTx    struct{ Tx int } // a transaction of another kind
)

func consumingTx(ctx context.Context) (any, bool) {
	tx := ctx.Value(consumingKey{})
	return tx, tx != nil
}

// Subscribe hands out each message in a transaction, which it commits after the ack.
func (c consuming) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	in, err := c.Subscriber.Subscribe(ctx, topic)
	if err != nil {
		return nil, err
	}
	out := make(chan *message.Message)
	go func() {
		defer close(out)
		for msg := range in {
			tx, err := c.db.BeginTx(ctx, nil)
			if err != nil {
				return
			}
			handed := msg.Copy()
			handed.SetContext(context.WithValue(msg.Context(), consumingKey{}, &wrappedTx{tx}))
			out <- handed
			select {
			case <-handed.Acked():
				_ = tx.Commit()
				msg.Ack()
			case <-handed.Nacked():
				_ = tx.Rollback()
				msg.Nack()
			case <-ctx.Done():
				_ = tx.Rollback()
			}
		}
	}()
	return out, nil
}

func TestSubscriberTx_lets_the_inbox_work_in_the_transaction_of_the_subscriber(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.DB.SetMaxOpenConns(1) // which the transaction holds
		inbox := inboxFor(t, database, nil)
		channel := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, nil)
		failures := 0
		startRouter(t, func(router *message.Router) {
			router.AddHandler("billing", "orders", consuming{channel, database.DB}, "receipts", channel, handler(func() error {
				if failures++; failures == 1 {
					return errHandler
				}
				return nil
			})).AddMiddleware(middleware.SubscriberTx(consumingTx), inbox.Middleware)
		})
		for range 2 { // delivered twice
			require.NoError(t, channel.Publish("orders", message.NewMessage("1", nil)))
		}
		effects, receipts, dead := counts(t, database)
		require.Equal(t, []int{1, 1, 0}, []int{effects, receipts, dead})
		require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_claims"))
	})
}

// An inbox within another one is part of it, also with this setting: the outer one holds the claim.
func TestInbox_with_a_transaction_of_its_own_is_part_of_an_outer_one(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		inbox := inboxFor(t, database, func(c *middleware.InboxConfig) { c.OwnTransaction = true })
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		msg := message.NewMessage("1", nil)
		msg.SetContext(ctx)
		processed, err := inbox.Process(ctx, msg, inbox.Middleware(handler(succeed)))
		require.NoError(t, err)
		require.True(t, processed)
		effects, _, dead := counts(t, database)
		require.Equal(t, []int{1, 0}, []int{effects, dead})
	})
}

// The subscriber of watermill-sql commits half a handler when it closes.
func TestInbox_says_once_that_it_works_in_the_transaction_of_a_subscriber(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	_ = inboxFor(t, database, nil) // makes the tables
	database.DB.SetMaxOpenConns(1)
	store, err := inboxstore.New(database.Postbox(), inboxstore.Config{}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = store.Close() })
	logger := watermill.NewCaptureLogger()
	inbox, err := middleware.NewInbox(store, middleware.InboxConfig{Consumer: "billing", Topic: "orders"}, logger)
	require.NoError(t, err)
	channel := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, nil)
	startRouter(t, func(router *message.Router) {
		router.AddConsumerHandler("billing", "orders", consuming{channel, database.DB}, func(*message.Message) error { return nil }).
			AddMiddleware(middleware.SubscriberTx(consumingTx), inbox.Middleware)
	})
	for _, id := range []string{"1", "2"} {
		require.NoError(t, channel.Publish("orders", message.NewMessage(id, nil)))
	}
	said := logged(logger, watermill.ErrorLogLevel, "An inbox works in the transaction of a subscriber of watermill-sql")
	require.Len(t, said, 1)
	require.ErrorContains(t, said[0], "set InboxConfig.OwnTransaction")
}

func TestInbox_refuses_a_subscriber_whose_transaction_it_does_not_see(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		err := billOnce(t, database, nil)
		require.ErrorContains(t, err, "add middleware.SubscriberTx(sql.TxFromContext) before the inbox")
		require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_claims"))
	})
}

func TestInbox_has_a_transaction_of_its_own_beside_that_of_the_subscriber(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) { // SQLite has one writer
		require.NoError(t, billOnce(t, database, func(c *middleware.InboxConfig) { c.OwnTransaction = true }))
		effects, receipts, _ := counts(t, database)
		require.Equal(t, []int{1, 1}, []int{effects, receipts})
	})
}

// billOnce lets the inbox handle a message from a subscriber with an unseen transaction, and
// returns its error.
func billOnce(t *testing.T, database *testdb.Database, change func(*middleware.InboxConfig)) error {
	t.Helper()
	inbox := inboxFor(t, database, change)
	channel := gochannel.NewGoChannel(gochannel.Config{}, nil)
	returned := make(chan error, 1)
	router := startRouter(t, func(router *message.Router) {
		router.AddMiddleware(func(h message.HandlerFunc) message.HandlerFunc {
			return func(msg *message.Message) ([]*message.Message, error) {
				produced, err := h(msg)
				select {
				case returned <- err:
				default:
				}
				return produced, err
			}
		})
		router.AddHandler("billing", "orders", consuming{channel, database.DB}, "receipts", channel, handler(succeed)).AddMiddleware(inbox.Middleware)
	})
	require.NoError(t, channel.Publish("orders", message.NewMessage("1", nil)))
	err := <-returned
	require.NoError(t, router.Close())
	return err
}

func TestSubscriberTx_mistakes_are_errors_that_say_what_to_do(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	inbox := inboxFor(t, database, nil)
	tx, err := database.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	call := func(found any, around func(message.HandlerFunc) message.HandlerFunc) error {
		msg := message.NewMessage("1", nil)
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), consumingKey{}, found), time.Millisecond)
		cancel() // which ends the pause before the nack
		msg.SetContext(ctx)
		_, err := around(middleware.SubscriberTx(consumingTx)(func(msg *message.Message) ([]*message.Message, error) {
			seen, ok := postbox.TxFromContext(msg.Context())
			require.True(t, ok)
			require.Same(t, tx, seen)
			return nil, nil
		}))(msg)
		require.Equal(t, ctx, msg.Context(), "it gives the context back")
		return err
	}
	plainly := func(h message.HandlerFunc) message.HandlerFunc { return h }
	require.NoError(t, call(tx, plainly))
	require.NoError(t, call(wrappedTx{tx}, plainly))
	for _, found := range []any{anotherTx{}, &wrappedTx{}, (*sql.Tx)(nil), (*wrappedTx)(nil), 3} {
		require.ErrorContains(t, call(found, plainly), "set InboxConfig.OwnTransaction", "%T", found)
	}
	require.NoError(t, tx.Rollback())
	msg := message.NewMessage("1", nil)
	msg.SetContext(context.WithValue(t.Context(), consumingKey{}, wrappedTx{tx}))
	_, err = inbox.Middleware(middleware.SubscriberTx(consumingTx)(handler(succeed)))(msg)
	require.ErrorContains(t, err, "add middleware.SubscriberTx before the inbox")
}
