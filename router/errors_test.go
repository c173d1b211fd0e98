package router_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/middleware"
	"github.com/postbox-go/watermill-postbox/queue"
	"github.com/postbox-go/watermill-postbox/router"
)

func noop(*message.Message) ([]*message.Message, error) { return nil, nil }

func TestRouter_name_clashes_are_errors_not_panics(t *testing.T) {
	t.Parallel()
	s := newService(t, testdb.SQLite(t), nil)
	_, err := s.router.AddInboxHandler("orders", "orders", s.broker, "", noop, middleware.InboxConfig{})
	require.NoError(t, err)
	_, err = s.router.AddInboxHandler("orders", "orders", s.broker, "", noop, middleware.InboxConfig{})
	require.ErrorContains(t, err, `the router has a handler "orders" already`)
	_, err = s.router.AddQueueHandler("orders", "orders", s.broker, "", noop, router.QueueConfig{Worker: queue.Config{Unordered: true}})
	require.ErrorContains(t, err, `the router has a handler "orders" already`)
	for i, expected := range []string{"", "the router has a handler"} {
		_, err := s.router.AddForwarder(s.database.Postbox(), s.broker, forwarder.Config{})
		if i == 0 {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, expected)
		}
	}
}

func TestRouter_a_queue_has_one_handler(t *testing.T) {
	t.Parallel()
	s := newService(t, testdb.SQLite(t), nil)
	_, err := s.router.AddQueueHandler("one", "orders", s.broker, "", noop, router.QueueConfig{Queue: "fraud"})
	require.NoError(t, err)
	_, err = s.router.AddQueueHandler("two", "users", s.broker, "", noop, router.QueueConfig{Queue: "fraud"})
	require.ErrorContains(t, err, "use AddDeferral for a second topic")
	_, err = s.router.AddBatchHandler("three", "users", s.broker, func(context.Context, []*message.Message) error { return nil },
		router.BatchConfig{Queue: "fraud"})
	require.ErrorContains(t, err, "use AddDeferral for a second topic")
}

func TestRouter_two_handlers_of_a_topic_are_two_consumers(t *testing.T) {
	t.Parallel()
	s := newService(t, testdb.SQLite(t), nil)
	billing := middleware.InboxConfig{Consumer: "billing"}
	_, err := s.router.AddInboxHandler("one", "orders", s.broker, "", noop, billing)
	require.NoError(t, err)
	for name, config := range map[string]middleware.InboxConfig{"two": billing, "billing": {}} {
		_, err = s.router.AddInboxHandler(name, "orders", s.broker, "", noop, config)
		require.ErrorContains(t, err, `the handler "one" is the consumer "billing" of topic "orders" already`)
		require.ErrorContains(t, err, "if their effects differ, set another InboxConfig.Consumer")
		require.ErrorContains(t, err, "if both do the same and share the topic, leave one of them out and run more processes")
		require.ErrorContains(t, err, "Config.SharedConsumers")
	}
	_, err = s.router.AddInboxHandler("three", "orders", s.broker, "", noop, middleware.InboxConfig{})
	require.NoError(t, err, "each is its own consumer by default")
	_, err = s.router.AddInboxHandler("four", "refunds", s.broker, "", noop, billing)
	require.NoError(t, err, "of another topic")
	_, err = s.router.AddInboxHandler("five", "orders", s.broker, "", noop, middleware.InboxConfig{Consumer: "billing", Topic: "other broker's orders"})
	require.NoError(t, err, "of another topic")
}

// Two handlers that do the same take one queue of a broker in turns, and what one had and did not
// ack goes to the other.
func TestRouter_F21_handlers_that_share_a_consumer_have_one_effect_of_a_message(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		s := newService(t, database, func(c *router.Config) { c.SharedConsumers = true })
		other := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, nil)
		t.Cleanup(func() { _ = other.Close() })
		for name, share := range map[string]*gochannel.GoChannel{"one": s.broker, "two": other} {
			_, err := s.router.AddInboxHandler(name, "orders", share, "receipts", s.effect("billing"), middleware.InboxConfig{Consumer: "billing"})
			require.NoError(t, err)
		}
		s.run()
		require.NoError(t, s.broker.Publish("orders", message.NewMessage("1", nil)))
		require.NoError(t, other.Publish("orders", message.NewMessage("1", nil), message.NewMessage("2", nil)))
		require.Equal(t, 2, s.effects("billing"))
	})
}

// S0 0.11: no handler for a stored message is an error that somebody sees, never "done".
// Also covers feature 0.11.
func TestRouter_a_stored_queue_without_a_handler_is_an_error(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		s := newService(t, database, nil)
		for _, queue := range []string{"fraud", "renamed since"} {
			_, err := s.store.Defer(t.Context(), queue, inboxstore.Key{MessageID: queue}, message.NewMessage("1", nil))
			require.NoError(t, err)
		}
		add := func(r *router.Router) {
			_, err := r.AddQueueHandler("fraud", "orders", s.broker, "", noop, router.QueueConfig{Worker: queue.Config{Unordered: true}})
			require.NoError(t, err)
		}
		add(s.router)
		err := s.router.Run(t.Context())
		require.ErrorContains(t, err, "these queues have messages and no handler: renamed since: add a handler")
		require.True(t, strings.HasPrefix(err.Error(), "postbox router: "), "not with the address of a function: %s", err)

		own, err := router.New(nil, router.Config{Store: s.store}, nil)
		require.NoError(t, err)
		require.ErrorContains(t, own.Router().Run(t.Context()), ": postbox router: these queues", "Watermill's words come first, and ours say whose they are")

		tolerant, err := router.New(nil, router.Config{Store: s.store, OtherQueues: []string{"renamed since"}}, nil)
		require.NoError(t, err)
		s.router = tolerant
		add(tolerant)
		s.run()
		s.eventually("the one with a handler is worked off", func() bool {
			return database.Count(t, "SELECT COUNT(*) FROM postbox_messages") == 1
		})
	})
}

func TestRouter_a_queue_that_is_only_fed_is_an_error_at_start(t *testing.T) {
	t.Parallel()
	s := newService(t, testdb.SQLite(t), func(c *router.Config) { c.OtherQueues = []string{"elsewhere"} })
	require.NoError(t, s.router.AddDeferral("one", "orders", s.broker, "elsewhere", middleware.DeferConfig{}))
	require.NoError(t, s.router.AddDeferral("two", "orders", s.broker, "typo", middleware.DeferConfig{}))
	require.ErrorContains(t, s.router.Run(t.Context()), "without a handler: typo: add a handler")
}

func TestRouter_missing_tables_are_an_error_at_start(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	store, err := inboxstore.New(database.Postbox(), inboxstore.Config{}, nil)
	require.NoError(t, err)
	r, err := router.New(nil, router.Config{Store: store}, nil)
	require.NoError(t, err)
	require.ErrorContains(t, r.Run(t.Context()), "call postbox.Migrate first")
}

func TestRouter_F9_claims_are_kept_for_longer_than_a_redelivery_takes(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	store, err := inboxstore.New(database.Postbox(), inboxstore.Config{ClaimRetention: time.Hour}, nil)
	require.NoError(t, err)
	_, err = router.New(nil, router.Config{Store: store, LongestRedelivery: 2 * time.Hour}, nil)
	require.ErrorContains(t, err, "may be delivered again after 2h0m0s, but the store deletes their claims after 1h0m0s: set inboxstore.Config.ClaimRetention")
	_, err = router.New(nil, router.Config{Store: store, LongestRedelivery: time.Hour}, nil)
	require.NoError(t, err)
}

func TestRouter_bad_wiring_says_what_to_do(t *testing.T) {
	t.Parallel()
	_, err := router.New(nil, router.Config{}, nil)
	require.ErrorContains(t, err, "Store")
	s := newService(t, testdb.SQLite(t), func(c *router.Config) { c.Outbox = nil })
	_, err = router.New(nil, router.Config{Store: s.store, Outbox: s.broker}, nil)
	require.ErrorContains(t, err, "Outbox: a *gochannel.GoChannel publishes immediately")
	_, err = s.router.AddInboxHandler("now", "orders", s.broker, "receipts", noop, middleware.InboxConfig{})
	require.ErrorContains(t, err, "set Config.Outbox")
	for _, config := range []middleware.InboxConfig{{Outbox: s.outbox}, {PublishTopic: "receipts"}} {
		_, err = s.router.AddInboxHandler("now", "orders", s.broker, "", noop, config)
		require.ErrorContains(t, err, "leave Outbox and PublishTopic empty")
	}
	for _, subscriber := range []message.Subscriber{nil, (*gochannel.GoChannel)(nil)} {
		_, err = s.router.AddInboxHandler("now", "orders", subscriber, "", noop, middleware.InboxConfig{})
		require.ErrorContains(t, err, "is nil")
	}
	_, err = s.router.AddBatchHandler("many", "orders", s.broker, nil, router.BatchConfig{})
	require.ErrorContains(t, err, "is nil")
	_, err = s.router.AddQueueHandler("later", "orders", s.broker, "", nil, router.QueueConfig{})
	require.ErrorContains(t, err, "is nil")
	_, err = s.router.AddQueueHandler("later", "orders", s.broker, "", noop, router.QueueConfig{
		Worker: queue.Config{Concurrency: -1},
	})
	require.ErrorContains(t, err, "Concurrency")
}

// A Watermill router does not run a handler that is added later, and Run does not return any more
// when its context ends.
func TestRouter_nothing_can_be_added_to_a_router_that_runs_or_is_closed(t *testing.T) {
	t.Parallel()
	s := newService(t, testdb.SQLite(t), nil)
	s.handle("first")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.router.Run(ctx) }()
	<-s.router.Running()
	s.refuseMore(s.router)
	running, err := router.New(s.router.Router(), router.Config{Store: s.store, Outbox: s.outbox}, nil)
	require.NoError(t, err)
	s.refuseMore(running)
	cancel()
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-time.After(20 * time.Second):
		require.FailNow(t, "Run does not return")
	}
	s.refuseMore(s.router)

	closed := newService(t, testdb.SQLite(t), nil)
	require.NoError(t, closed.router.Close())
	closed.refuseMore(closed.router)
}

// The router subscribes to one topic after the other, and may wait for the database meanwhile. A
// handler that is added in this time would not run either.
func TestRouter_nothing_can_be_added_to_a_router_that_starts(t *testing.T) {
	t.Parallel()
	s := newService(t, testdb.SQLite(t), nil)
	starting, proceed := make(chan struct{}), make(chan struct{})
	s.router.Router().AddPlugin(func(*message.Router) error {
		close(starting)
		<-proceed
		return nil
	})
	s.handle("first")
	done := make(chan error, 1)
	go func() { done <- s.router.Run(context.Background()) }()
	<-starting
	s.refuseMore(s.router)
	close(proceed)
	<-s.router.Running()
	require.NoError(t, s.router.Close())
	require.NoError(t, <-done)
}

func (s *service) handle(name string) {
	s.t.Helper()
	_, err := s.router.AddInboxHandler(name, "orders", s.broker, "", noop, middleware.InboxConfig{})
	require.NoError(s.t, err)
}

func (s *service) refuseMore(r *router.Router) {
	s.t.Helper()
	batch := func(context.Context, []*message.Message) error { return nil }
	for method, add := range map[string]func() error{
		"AddInboxHandler": func() error {
			_, err := r.AddInboxHandler("more", "orders", s.broker, "", noop, middleware.InboxConfig{})
			return err
		},
		"AddQueueHandler": func() error {
			_, err := r.AddQueueHandler("more", "orders", s.broker, "", noop, router.QueueConfig{})
			return err
		},
		"AddBatchHandler": func() error {
			_, err := r.AddBatchHandler("more", "orders", s.broker, batch, router.BatchConfig{})
			return err
		},
		"AddDeferral": func() error {
			return r.AddDeferral("more", "orders", s.broker, "more", middleware.DeferConfig{})
		},
		"AddForwarder": func() error {
			_, err := r.AddForwarder(s.database.Postbox(), s.broker, forwarder.Config{})
			return err
		},
		"Open": r.Open,
	} {
		require.ErrorContains(s.t, add(), "the router is running or closed, so nothing can be added", method)
	}
}
