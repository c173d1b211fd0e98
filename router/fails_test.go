package router_test

import (
	"context"
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
	"github.com/postbox-go/watermill-postbox/router"
)

// A part that can never run does not leave the router running without it.
func TestRouter_run_returns_the_error_of_a_part_that_cannot_run(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		s := newService(t, database, nil)
		without := postbox.Database{DB: database.DB, Dialect: database.Dialect, Prefix: "other_"}
		other, err := inboxstore.New(without, inboxstore.Config{}, nil)
		require.NoError(t, err)
		defer func() { _ = other.Close() }()

		for name, add := range map[string]func(r *router.Router) error{
			"forwarder without tables": func(r *router.Router) error {
				_, err := r.AddForwarder(without, s.broker, forwarder.Config{})
				return err
			},
			"queue without tables": func(r *router.Router) error {
				_, err := r.AddQueueHandler("queue", "orders", s.broker, "", noop, router.QueueConfig{Worker: queue.Config{Unordered: true}})
				return err
			},
			"batch without tables": func(r *router.Router) error {
				_, err := r.AddBatchHandler("batch", "orders", s.broker, func(context.Context, []*message.Message) error { return nil },
					router.BatchConfig{Batch: queue.BatchConfig{Age: time.Minute}})
				return err
			},
		} {
			s.broker = gochannel.NewGoChannel(gochannel.Config{}, nil) // a router closes the subscribers of its handlers
			r, err := router.New(nil, router.Config{Store: other, OtherQueues: []string{"queue", "batch"}}, nil)
			require.NoError(t, err)
			_, err = r.AddInboxHandler("healthy", "orders", s.broker, "", noop, middleware.InboxConfig{})
			require.NoError(t, err)
			require.NoError(t, add(r), name)
			done := make(chan error, 1)
			go func() { done <- r.Run(t.Context()) }()
			select {
			case err := <-done:
				require.ErrorContains(t, err, "call postbox.Migrate first", name)
			case <-time.After(patience):
				require.FailNow(t, "the router goes on", name)
			}
		}
	})
}

// Run of a Watermill router knows the errors of Subscribe only.
func TestRouter_run_of_a_Watermill_router_returns_the_error_of_a_part_that_cannot_start(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) { // without tables
		for name, add := range map[string]func(r *message.Router, broker *gochannel.GoChannel) error{
			"forwarder": func(r *message.Router, broker *gochannel.GoChannel) error {
				_, err := forwarder.New(database.Postbox(), broker, forwarder.Config{Router: r}, nil)
				return err
			},
			"queue": func(r *message.Router, _ *gochannel.GoChannel) error {
				store, err := inboxstore.New(database.Postbox(), inboxstore.Config{}, nil)
				if err != nil {
					return err
				}
				t.Cleanup(func() { _ = store.Close() })
				subscriber, err := queue.NewSubscriber(store, queue.Config{}, nil)
				if err != nil {
					return err
				}
				r.AddConsumerHandler("queue", "orders", subscriber, func(*message.Message) error { return nil })
				return nil
			},
		} {
			broker := gochannel.NewGoChannel(gochannel.Config{}, nil)
			r, err := message.NewRouter(message.RouterConfig{}, nil)
			require.NoError(t, err)
			r.AddConsumerHandler("healthy", "orders", broker, func(*message.Message) error { return nil })
			require.NoError(t, add(r, broker), name)
			done := make(chan error, 1)
			go func() { done <- r.Run(t.Context()) }()
			select {
			case err := <-done:
				require.ErrorContains(t, err, "call postbox.Migrate first", name)
			case <-time.After(patience):
				require.FailNow(t, "the router goes on", name)
			}
		}
	})
}
