package receipts_test

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
	"github.com/postbox-go/watermill-postbox/internal/enginetest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/middleware"
	"github.com/postbox-go/watermill-postbox/receipts"
	"github.com/postbox-go/watermill-postbox/router"
)

// service is what a program with Postbox has: a database, a broker, a store, an outbox and a
// router.
type service struct {
	t        *testing.T
	database *testdb.Database
	broker   *gochannel.GoChannel
	router   *router.Router
}

func newService(t *testing.T, database *testdb.Database) *service {
	t.Helper()
	database.Migrate(t)
	s := &service{
		t: t, database: database,
		broker: gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, nil),
	}
	t.Cleanup(func() { _ = s.broker.Close() })
	outbox, err := forwarder.NewPublisher(database.Postbox(), forwarder.PublisherConfig{}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = outbox.Close() })
	store, err := inboxstore.New(database.Postbox(), inboxstore.Config{}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = store.Close() })
	s.router, err = router.New(nil, router.Config{Store: store, Outbox: outbox, Module: "shop"}, nil)
	require.NoError(t, err)
	return s
}

// run runs the router until the end of the test, or until what it returns is called.
func (s *service) run() (stop func()) {
	s.t.Helper()
	done := make(chan error, 1)
	go func() { done <- s.router.Run(context.Background()) }()
	select {
	case <-s.router.Running():
	case err := <-done:
		require.FailNow(s.t, "the router does not start", "%v", err)
	}
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			require.NoError(s.t, s.router.Close())
			require.NoError(s.t, <-done)
		}
	}
	s.t.Cleanup(stop)
	return stop
}

func (s *service) eventually(what string, condition func() bool) {
	s.t.Helper()
	require.Eventually(s.t, condition, enginetest.Patience, testdb.PollPause, what)
}

func noop(*message.Message) ([]*message.Message, error) { return nil, nil }

// A part that can never run does not leave the router running without it.
func TestRouter_run_returns_the_error_of_a_receiver_that_cannot_run(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		s := newService(t, database)
		_, err := s.router.AddInboxHandler("healthy", "orders", s.broker, "", noop, middleware.InboxConfig{})
		require.NoError(t, err)
		without := postbox.Database{DB: database.DB, Dialect: database.Dialect, Prefix: "other_"}
		_, err = receipts.AddReceiver(s.router, "receipts", "handled", s.broker, without, receipts.Config{})
		require.NoError(t, err)
		done := make(chan error, 1)
		go func() { done <- s.router.Run(t.Context()) }()
		select {
		case err := <-done:
			require.ErrorContains(t, err, "call postbox.Migrate first")
		case <-time.After(enginetest.Patience):
			require.FailNow(t, "the router goes on")
		}
	})
}

// The router subscribes to one topic after the other, and may wait for the database meanwhile. A
// handler that is added in this time would not run either.
func TestAddReceiver_adds_nothing_to_a_router_that_starts_or_runs(t *testing.T) {
	t.Parallel()
	s := newService(t, testdb.SQLite(t))
	refused := func() {
		_, err := receipts.AddReceiver(s.router, "more", "receipts", s.broker, s.database.Postbox(), receipts.Config{})
		require.ErrorContains(t, err, "the router is running or closed, so nothing can be added")
	}
	starting, proceed := make(chan struct{}), make(chan struct{})
	s.router.Router().AddPlugin(func(*message.Router) error {
		close(starting)
		<-proceed
		return nil
	})
	_, err := s.router.AddInboxHandler("first", "orders", s.broker, "", noop, middleware.InboxConfig{})
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- s.router.Run(context.Background()) }()
	<-starting
	refused()
	close(proceed)
	<-s.router.Running()
	refused()
	require.NoError(t, s.router.Close())
	require.NoError(t, <-done)
	refused()
}
