package router_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"
	wmmiddleware "github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/middleware"
	"github.com/postbox-go/watermill-postbox/queue"
	"github.com/postbox-go/watermill-postbox/router"
)

var errRefused = errors.New("handler says no")

// errorEaters are Watermill's middlewares that do something else with an error than return it.
func errorEaters(t *testing.T) map[string]message.HandlerMiddleware {
	t.Helper()
	poison := gochannel.NewGoChannel(gochannel.Config{}, nil)
	t.Cleanup(func() { _ = poison.Close() })
	poisonQueue, err := wmmiddleware.PoisonQueue(poison, "poison")
	require.NoError(t, err)
	return map[string]message.HandlerMiddleware{
		"Retry":        wmmiddleware.Retry{MaxRetries: 3, InitialInterval: time.Millisecond}.Middleware,
		"PoisonQueue":  poisonQueue,
		"IgnoreErrors": wmmiddleware.NewIgnoreErrors([]error{errRefused}).Middleware,
	}
}

// places are where such a middleware may stand.
var places = map[string]func(r *message.Router, eater message.HandlerMiddleware, add func() []*message.Handler){
	"of the router, before": func(r *message.Router, eater message.HandlerMiddleware, add func() []*message.Handler) {
		r.AddMiddleware(eater)
		add()
	},
	"of the router, after": func(r *message.Router, eater message.HandlerMiddleware, add func() []*message.Handler) {
		add()
		r.AddMiddleware(eater)
	},
	"of each handler": func(_ *message.Router, eater message.HandlerMiddleware, add func() []*message.Handler) {
		for _, added := range add() {
			added.AddMiddleware(eater)
		}
	},
}

// begin makes another router, and another broker, since a router closes that.
func (s *service) begin() {
	s.t.Helper()
	s.broker = gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, nil)
	var err error
	s.router, err = router.New(nil, router.Config{Store: s.store, Outbox: s.outbox}, nil)
	require.NoError(s.t, err)
}

// failsOnce returns a handler that writes an effect and then fails, and succeeds when it is called
// again.
func (s *service) failsOnce(name string) message.HandlerFunc {
	var calls atomic.Int32
	return func(msg *message.Message) ([]*message.Message, error) {
		produced, err := s.effect(name)(msg)
		if err == nil && calls.Add(1) == 1 {
			err = errRefused
		}
		return produced, err
	}
}

// addFailing adds handlers that have a transaction, each of which fails the first time.
func (s *service) addFailing(name string) []*message.Handler {
	s.t.Helper()
	retry := postbox.RetryProfile{Base: time.Millisecond, Cap: time.Millisecond}
	later := router.QueueConfig{Worker: queue.Config{Unordered: true, Retry: retry, Tuning: postbox.Tuning{PollMin: time.Millisecond, PollMax: 20 * time.Millisecond}}}
	inbox, err := s.router.AddInboxHandler("now, "+name, name, s.broker, "receipts", s.failsOnce("now, "+name), middleware.InboxConfig{Retry: retry})
	require.NoError(s.t, err)
	deferred, err := s.router.AddQueueHandler("later, "+name, name, s.broker, "receipts", s.failsOnce("later, "+name), later)
	require.NoError(s.t, err)
	return []*message.Handler{inbox, deferred}
}

// Wherever it stands, a transaction in which the handler has returned an error never commits, and
// neither do the messages that it returned. The attempt is recorded, and the next one has the
// effect.
func TestRouter_G4_error_eaters_never_commit_what_a_failed_handler_wrote(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		s := newService(t, database, nil)
		failures := func() int { return database.Count(t, "SELECT COUNT(*) FROM postbox_failures") }
		receipts := func() int { return database.Count(t, "SELECT COUNT(*) FROM postbox_messages WHERE topic = 'receipts'") }
		for eater, eat := range errorEaters(t) {
			for place, arrange := range places {
				name := eater + " " + place
				failed, produced := failures(), receipts()
				s.begin()
				arrange(s.router.Router(), eat, func() []*message.Handler { return s.addFailing(name) })
				stop := s.run()
				require.NoError(t, s.broker.Publish(name, message.NewMessage("1", nil)))
				effects := 2
				if place == "of the router, before" && eater != "Retry" {
					effects = 1 // around an inbox it acks the delivery that failed
				}
				s.eventually(name, func() bool { return receipts() >= produced+effects })
				stop()
				require.Equal(t, effects, database.Count(t, "SELECT COUNT(*) FROM effects WHERE handler LIKE ?", "%, "+name), name)
				require.Equal(t, produced+effects, receipts(), name)
				require.Equal(t, failed+2, failures(), name)
			}
		}
	})
}
