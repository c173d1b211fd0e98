package router_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/health"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/middleware"
	"github.com/postbox-go/watermill-postbox/queue"
	"github.com/postbox-go/watermill-postbox/router"
)

// One router with one of everything: each message of the topic has one effect in each handler
// though it comes twice, and what the handlers return comes out of the forwarder.
func TestRouter_G4_handlers_of_all_kinds_work_together(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		s := newService(t, database, nil)
		const messages = 10
		_, err := s.router.AddInboxHandler("now", "orders", s.broker, "receipts", s.effect("now"), middleware.InboxConfig{})
		require.NoError(t, err)
		_, err = s.router.AddQueueHandler("later", "orders", s.broker, "receipts", s.effect("later"), router.QueueConfig{Worker: queue.Config{Unordered: true}})
		require.NoError(t, err)
		_, err = s.router.AddQueueHandler("in order", "orders", s.broker, "receipts", s.effect("in order"), router.QueueConfig{})
		require.NoError(t, err)
		_, err = s.router.AddBatchHandler("many", "orders", s.broker, func(ctx context.Context, batch []*message.Message) error {
			for _, msg := range batch {
				if err := s.write(ctx, "many", msg); err != nil {
					return err
				}
			}
			return nil
		}, router.BatchConfig{Batch: queue.BatchConfig{
			Size: messages, Worker: queue.Config{Transactional: true},
		}})
		require.NoError(t, err)
		_, err = s.router.AddForwarder(database.Postbox(), s.broker, forwarder.Config{})
		require.NoError(t, err)
		var mu sync.Mutex
		receipts := map[string]string{}
		_, err = s.router.AddInboxHandler("collect", "receipts", s.broker, "", func(msg *message.Message) ([]*message.Message, error) {
			mu.Lock()
			defer mu.Unlock()
			receipts[msg.UUID] = msg.Metadata.Get(postbox.MetadataCausationPath)
			return nil, nil
		}, middleware.InboxConfig{})
		require.NoError(t, err)
		require.ErrorContains(t, health.IsReady(0, s.router), "has not been started")
		stop := s.run()
		s.eventually("all are ready", func() bool { return health.IsReady(0, s.router) == nil })
		var names []string
		for _, state := range s.router.Health() {
			names = append(names, state.Name)
		}
		require.ElementsMatch(t, []string{`queue "later"`, `queue "in order"`, `queue "many"`, `outbox "outbox"`}, names)

		for i := range messages {
			for range 2 {
				msg := message.NewMessage(fmt.Sprint(i), nil)
				msg.Metadata.Set("name", "OrderPlaced")
				require.NoError(t, s.broker.Publish("orders", msg))
			}
		}
		s.eventually("all receipts are there", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(receipts) == 3*messages
		})
		s.eventually("the batch is done", func() bool { return s.effects("many") == messages })
		stop()
		for _, handler := range []string{"now", "later", "in order", "many"} {
			require.Equal(t, messages, s.effects(handler), handler)
		}
		require.Equal(t, `["shop/OrderPlaced"]`, receipts["later 3"], "the path goes through inbox and outbox")
		require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_messages"))
		require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_lanes WHERE holder IS NOT NULL"), "everything is handed back")
	})
}

// The queue hears why the handler failed, which a Nack does not say, and of a panic where.
// Also covers feature 0.7.
func TestRouter_records_failures_of_deferred_handlers(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	s := newService(t, database, nil)
	attempts := 0
	_, err := s.router.AddQueueHandler("later", "orders", s.broker, "", func(*message.Message) ([]*message.Message, error) {
		attempts++
		switch attempts {
		case 1:
			return nil, errors.New("the bank does not answer")
		case 2:
			panic("oh no")
		default:
			return nil, postbox.Permanent(errors.New("no such account"))
		}
	}, router.QueueConfig{Worker: queue.Config{Retry: postbox.RetryProfile{Base: time.Millisecond, Cap: time.Millisecond}}})
	require.NoError(t, err)
	s.run()
	require.NoError(t, s.broker.Publish("orders", message.NewMessage("1", nil)))
	s.eventually("it is dead", func() bool { return database.Count(t, "SELECT COUNT(*) FROM postbox_dead_letters") == 1 })
	for _, text := range []string{"the bank does not answer", "panic: oh no%router_test.go", "no such account"} {
		require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_failures WHERE error LIKE ?", "%"+text+"%"), text)
	}
}

// Middleware added to a handler works in its transaction: what it does goes when the handler fails.
func TestRouter_middleware_of_a_handler_works_in_its_transaction(t *testing.T) {
	t.Parallel()
	s := newService(t, testdb.SQLite(t), nil)
	added, err := s.router.AddInboxHandler("now", "orders", s.broker, "", func(*message.Message) ([]*message.Message, error) {
		return nil, postbox.Permanent(errors.New("no"))
	}, middleware.InboxConfig{})
	require.NoError(t, err)
	ran := make(chan struct{}, 1)
	added.AddMiddleware(func(h message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			if err := s.write(msg.Context(), "middleware", msg); err != nil {
				return nil, err
			}
			ran <- struct{}{}
			return h(msg)
		}
	})
	stop := s.run()
	require.NoError(t, s.broker.Publish("orders", message.NewMessage("1", nil)))
	<-ran
	stop()
	require.Zero(t, s.effects("middleware"))
}

func TestRouter_two_topics_share_a_queue(t *testing.T) {
	t.Parallel()
	s := newService(t, testdb.SQLite(t), nil)
	_, err := s.router.AddQueueHandler("fraud", "orders", s.broker, "", s.effect("fraud"), router.QueueConfig{
		Worker: queue.Config{Unordered: true, Transactional: true, MapError: func(queue.Failure) error { return nil }},
	})
	require.NoError(t, err)
	require.NoError(t, s.router.AddDeferral("fraud_users", "users", s.broker, "fraud", middleware.DeferConfig{}))
	stop := s.run()
	for _, topic := range []string{"orders", "users"} { // the same id on two topics is two messages
		require.NoError(t, s.broker.Publish(topic, message.NewMessage("1", nil)))
	}
	s.eventually("both are through", func() bool {
		return s.database.Count(t, "SELECT COUNT(*) FROM postbox_claims") == 2 && s.database.Count(t, "SELECT COUNT(*) FROM postbox_messages") == 0
	})
	stop()
}

// A router that has the inbox for all its handlers, and is then given to the package router.
func TestRouter_an_inbox_for_the_whole_router_loses_nothing(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		s := newService(t, database, nil)
		inbox, err := middleware.NewInbox(s.store, middleware.InboxConfig{}, nil)
		require.NoError(t, err)
		s.router.Router().AddMiddleware(inbox.Middleware)
		_, err = s.router.AddInboxHandler("now", "orders", s.broker, "receipts", s.effect("now"), middleware.InboxConfig{})
		require.NoError(t, err)
		_, err = s.router.AddQueueHandler("later", "orders", s.broker, "receipts", s.effect("later"), router.QueueConfig{Worker: queue.Config{Unordered: true}})
		require.NoError(t, err)
		stop := s.run()
		const messages = 20
		for range 2 { // delivered twice
			for i := range messages {
				require.NoError(t, s.broker.Publish("orders", message.NewMessage(fmt.Sprint(i), nil)))
			}
		}
		s.eventually("all are handled", func() bool { return s.effects("later") == messages })
		stop()
		require.Equal(t, messages, s.effects("now"))
		require.Equal(t, 2*messages, database.Count(t, "SELECT COUNT(*) FROM postbox_messages WHERE topic = 'receipts'"))
	})
}
