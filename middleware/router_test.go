package middleware_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
	wmsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/middleware"
)

const patience = time.Minute

func startRouter(t *testing.T, add func(*message.Router)) *message.Router {
	t.Helper()
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	require.NoError(t, err)
	add(router)
	done := make(chan error, 1)
	go func() { done <- router.Run(context.Background()) }()
	<-router.Running()
	t.Cleanup(func() {
		_ = router.Close()
		require.NoError(t, <-done)
	})
	return router
}

func TestInbox_in_a_router_takes_consumer_and_topics_from_it(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	inbox := inboxFor(t, database, func(c *middleware.InboxConfig) { c.Consumer, c.Topic, c.PublishTopic = "", "", "" })
	channel := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, nil)
	startRouter(t, func(router *message.Router) {
		for _, name := range []string{"one", "two"} { // F21: two consumers of one topic
			router.AddHandler(name, "orders", channel, "receipts", channel, handler(succeed)).AddMiddleware(inbox.Middleware)
		}
	})
	for range 3 {
		require.NoError(t, channel.Publish("orders", message.NewMessage("1", nil)))
	}
	effects, receipts, dead := counts(t, database)
	require.Equal(t, []int{2, 2, 0}, []int{effects, receipts, dead})
}

// The router closes in the middle of a handler and cancels its context: the handler ends in peace
// and is committed, so the next delivery is a duplicate. Also covers F24.
func TestInbox_G12_router_closes_while_a_handler_runs(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		inbox := inboxFor(t, database, nil)
		channel := gochannel.NewGoChannel(gochannel.Config{}, nil)
		entered, proceed := make(chan struct{}), make(chan struct{})
		router := startRouter(t, func(router *message.Router) {
			router.AddConsumerHandler("billing", "orders", channel, func(msg *message.Message) error {
				close(entered)
				<-proceed
				_, err := handler(succeed)(msg)
				return err
			}).AddMiddleware(inbox.Middleware)
		})
		require.NoError(t, channel.Publish("orders", message.NewMessage("1", nil)))
		<-entered
		closed := make(chan error, 1)
		go func() { closed <- router.Close() }()
		close(proceed)
		require.NoError(t, <-closed)
		processed, err := inbox.Process(t.Context(), message.NewMessage("1", nil), handler(succeed))
		require.NoError(t, err)
		require.False(t, processed)
		effects, _, _ := counts(t, database)
		require.Equal(t, 1, effects)
	})
}

// The subscriber of watermill-sql v3 commits what a failed handler wrote (L1) and delivers again.
// So an inbox has a transaction of its own, and a handler that asks watermill-sql for one gets it.
func TestInbox_works_apart_from_the_transaction_of_the_watermill_sql_subscriber(t *testing.T) {
	t.Parallel()
	for _, open := range []func(*testing.T) *testdb.Database{testdb.Postgres, testdb.MySQL} {
		database := open(t)
		inbox := inboxFor(t, database, func(c *middleware.InboxConfig) { c.Retry.Attempts = 10; c.Outbox = tableOutbox{} })
		subscriber, publisher := watermillSQL(t, database)
		failures := 0
		startRouter(t, func(router *message.Router) {
			var subscribers *sql.Tx
			router.AddMiddleware(func(h message.HandlerFunc) message.HandlerFunc {
				return func(msg *message.Message) ([]*message.Message, error) {
					subscribers, _ = wmsql.TxFromContext(msg.Context())
					return h(msg)
				}
			})
			router.AddHandler("billing", "orders", subscriber, "receipts", publisher, func(msg *message.Message) ([]*message.Message, error) {
				tx, _ := wmsql.TxFromContext(msg.Context())
				own, ok := postbox.TxFromContext(msg.Context())
				if !ok || tx != own || tx == subscribers {
					t.Error("the handler finds another transaction than that of the inbox")
				}
				if _, err := tx.ExecContext(msg.Context(), "INSERT INTO effects VALUES ('x')"); err != nil {
					return nil, err
				}
				if failures++; failures <= 2 {
					_, err := tx.ExecContext(msg.Context(), "INSERT INTO no_such_table VALUES (1)")
					return nil, err
				}
				return []*message.Message{message.NewMessage(msg.UUID, nil)}, nil
			}).AddMiddleware(inbox.Middleware)
		})
		for i := range 3 {
			for range 2 { // each comes twice
				require.NoError(t, publisher.Publish("orders", message.NewMessage(fmt.Sprint(i), []byte("{}"))))
			}
		}
		require.Eventually(t, func() bool {
			return database.Count(t, "SELECT COUNT(*) FROM postbox_claims") == 3
		}, patience, 5*time.Millisecond)
		effects, _, _ := counts(t, database)
		require.Equal(t, 6, effects, "of the handler, and of the messages that it returns")
		require.Equal(t, 2, database.Count(t, "SELECT COUNT(*) FROM postbox_failures"))
	}
}

// tableOutbox is an outbox of the user's own, which finds its transaction as a subscriber of
// watermill-sql offers it.
type tableOutbox struct{}

func (tableOutbox) PublishesInTx() bool { return true }
func (tableOutbox) Close() error        { return nil }

func (tableOutbox) Publish(_ string, messages ...*message.Message) error {
	for _, msg := range messages {
		tx, _ := wmsql.TxFromContext(msg.Context())
		if own, _ := postbox.TxFromContext(msg.Context()); tx != own {
			return errors.New("a returned message has another transaction than that of the inbox")
		}
		if _, err := tx.ExecContext(msg.Context(), "INSERT INTO effects VALUES ('x')"); err != nil {
			return err
		}
	}
	return nil
}

// The subscriber of watermill-sql commits its transaction in the middle of a handler when it
// closes. An inbox commits nothing of such a handler.
func TestInbox_G4_commits_no_half_of_a_handler_when_a_subscriber_closes(t *testing.T) {
	t.Parallel()
	for _, open := range []func(*testing.T) *testdb.Database{testdb.Postgres, testdb.MySQL} {
		database := open(t)
		inbox := inboxFor(t, database, func(c *middleware.InboxConfig) { c.Outbox = nil })
		subscriber, publisher := watermillSQL(t, database)
		var begun atomic.Bool
		closed := make(chan error, 1)
		handle := func(msg *message.Message) error {
			write := func() error {
				tx, ok := wmsql.TxFromContext(msg.Context())
				if !ok {
					return postbox.ErrNoTransaction
				}
				_, err := tx.ExecContext(context.WithoutCancel(msg.Context()), "INSERT INTO effects VALUES ('x')")
				return err
			}
			if err := write(); err != nil {
				return err
			}
			if begun.CompareAndSwap(false, true) {
				closed <- subscriber.Close()
			}
			return write()
		}
		var deliveries atomic.Int32
		begin := func() {
			startRouter(t, func(router *message.Router) {
				router.AddMiddleware(func(h message.HandlerFunc) message.HandlerFunc {
					return func(msg *message.Message) ([]*message.Message, error) {
						defer deliveries.Add(1)
						return h(msg)
					}
				})
				router.AddConsumerHandler("billing", "orders", subscriber, handle).AddMiddleware(inbox.Middleware)
			})
		}
		begin()
		require.NoError(t, publisher.Publish("orders", message.NewMessage("1", []byte("{}"))))
		require.NoError(t, <-closed)
		subscriber, _ = watermillSQL(t, database)
		begin()
		require.Eventually(t, func() bool { return deliveries.Load() >= 2 }, patience, 5*time.Millisecond)
		require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_claims"))
		effects, _, _ := counts(t, database)
		require.Equal(t, 2, effects)
	}
}

// The transaction of the subscriber stays open during a pause, and other topics wait for its end.
func TestInbox_does_not_pause_for_long_behind_a_subscriber_of_watermill_sql(t *testing.T) {
	t.Parallel()
	database := testdb.Postgres(t)
	inbox := inboxFor(t, database, func(c *middleware.InboxConfig) { c.Outbox = nil })
	subscriber, publisher := watermillSQL(t, database)
	var deliveries atomic.Int32
	startRouter(t, func(router *message.Router) {
		router.AddConsumerHandler("billing", "orders", subscriber, func(*message.Message) error {
			if deliveries.Add(1) == 1 {
				return postbox.RetryAfter(errHandler, time.Hour)
			}
			return nil
		}).AddMiddleware(inbox.Middleware)
	})
	require.NoError(t, publisher.Publish("orders", message.NewMessage("1", []byte("{}"))))
	require.Eventually(t, func() bool { return deliveries.Load() == 2 }, patience, 5*time.Millisecond)
}

func watermillSQL(t *testing.T, database *testdb.Database) (message.Subscriber, message.Publisher) {
	t.Helper()
	var schema wmsql.SchemaAdapter = wmsql.DefaultPostgreSQLSchema{}
	var offsets wmsql.OffsetsAdapter = wmsql.DefaultPostgreSQLOffsetsAdapter{}
	if database.Dialect == postbox.MySQL {
		schema, offsets = wmsql.DefaultMySQLSchema{}, wmsql.DefaultMySQLOffsetsAdapter{}
	}
	publisher, err := wmsql.NewPublisher(database.DB, wmsql.PublisherConfig{SchemaAdapter: schema, AutoInitializeSchema: true}, nil)
	require.NoError(t, err)
	ackDeadline := time.Hour
	subscriber, err := wmsql.NewSubscriber(database.DB, wmsql.SubscriberConfig{
		SchemaAdapter: schema, OffsetsAdapter: offsets, InitializeSchema: true,
		PollInterval: 10 * time.Millisecond, ResendInterval: 10 * time.Millisecond, AckDeadline: &ackDeadline,
	}, nil)
	require.NoError(t, err)
	require.NoError(t, subscriber.SubscribeInitialize("orders"))
	return subscriber, publisher
}
