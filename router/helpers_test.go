package router_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/router"
)

const patience = time.Minute

// service is what a program with Postbox has: a database, a broker, a store, an outbox and a
// router.
type service struct {
	t        *testing.T
	database *testdb.Database
	broker   *gochannel.GoChannel
	outbox   *forwarder.Publisher
	store    *inboxstore.Store
	router   *router.Router
}

func newService(t *testing.T, database *testdb.Database, change func(*router.Config)) *service {
	t.Helper()
	database.Migrate(t)
	database.Exec(t, "CREATE TABLE effects (id VARCHAR(100), handler VARCHAR(100))")
	s := &service{
		t: t, database: database,
		broker: gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, nil),
	}
	t.Cleanup(func() { _ = s.broker.Close() })
	var err error
	s.outbox, err = forwarder.NewPublisher(database.Postbox(), forwarder.PublisherConfig{}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.outbox.Close() })
	s.store, err = inboxstore.New(database.Postbox(), inboxstore.Config{}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.store.Close() })
	config := router.Config{Store: s.store, Outbox: s.outbox, Module: "shop"}
	if change != nil {
		change(&config)
	}
	s.router, err = router.New(nil, config, nil)
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

// effect returns a handler that writes a row through its transaction and returns a receipt.
func (s *service) effect(name string) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		if err := s.write(msg.Context(), name, msg); err != nil {
			return nil, err
		}
		return []*message.Message{message.NewMessage(name+" "+msg.UUID, nil)}, nil
	}
}

func (s *service) write(ctx context.Context, name string, msg *message.Message) error {
	tx, ok := postbox.TxFromContext(ctx)
	if !ok {
		return fmt.Errorf("%s has no transaction", name)
	}
	_, err := tx.ExecContext(ctx, s.database.Bind("INSERT INTO effects (id, handler) VALUES (?, ?)"), msg.UUID, name)
	return err
}

func (s *service) effects(handler string) int {
	s.t.Helper()
	return s.database.Count(s.t, "SELECT COUNT(*) FROM effects WHERE handler = ?", handler)
}

func (s *service) eventually(what string, condition func() bool) {
	s.t.Helper()
	require.Eventually(s.t, condition, patience, testdb.PollPause, what)
}
