package adoption_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/middleware"
	"github.com/postbox-go/watermill-postbox/queue"
)

// service is one that publishes and consumes through a broker.
type service struct {
	*world

	bus    *gochannel.GoChannel
	store  *inboxstore.Store
	broken atomic.Bool // the handler fails
}

func newService(w *world) *service {
	w.Helper()
	s := &service{world: w, bus: gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, nil)}
	w.database.Exec(w.T, "CREATE TABLE payments (order_name VARCHAR(100))")
	w.Cleanup(func() { require.NoError(w, s.bus.Close()) })
	return s
}

// payments returns how many there are, and of how many orders.
func (s *service) payments() (all, orders int) {
	return s.database.Count(s.T, "SELECT COUNT(*) FROM payments"), s.database.Count(s.T, "SELECT COUNT(DISTINCT order_name) FROM payments")
}

// paid waits until each order has a payment.
func (s *service) paid(what string) {
	s.Helper()
	s.eventually(func() bool { _, orders := s.payments(); return orders == len(s.placed) }, what)
}

// directly publishes to the broker after the commit, as a service without an outbox does.
func (s *service) directly(number int) {
	s.Helper()
	var list []*message.Message
	s.place(number, func(_ context.Context, _ *sql.Tx, msg *message.Message) error {
		list = append(list, message.NewMessage(msg.UUID, msg.Payload))
		return nil
	})
	require.NoError(s, s.bus.Publish("orders", list...))
}

// pay is the handler. It writes in the transaction of an inbox if there is one.
func (s *service) pay(msg *message.Message) error {
	if s.broken.Load() {
		return postbox.Permanent(errors.New("card declined"))
	}
	if tx, ok := postbox.TxFromContext(msg.Context()); ok {
		_, err := tx.ExecContext(msg.Context(), s.database.Bind("INSERT INTO payments VALUES (?)"), string(msg.Payload))
		return err
	}
	_, err := s.database.DB.ExecContext(msg.Context(), s.database.Bind("INSERT INTO payments VALUES (?)"), string(msg.Payload))
	return err
}

// consume runs a router until stopped.
func (s *service) consume(add func(router *message.Router)) (stop func()) {
	s.Helper()
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	require.NoError(s, err)
	add(router)
	ended := make(chan error, 1)
	go func() { ended <- router.Run(context.WithoutCancel(s.Context())) }()
	<-router.Running()
	stop = sync.OnceFunc(func() {
		require.NoError(s, router.Close())
		require.NoError(s, <-ended)
	})
	s.Cleanup(stop)
	return stop
}

// subscription is the bus without its Close, which a router calls when it ends.
type subscription struct{ bus *gochannel.GoChannel }

// Subscribe subscribes until ctx ends.
func (s subscription) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	return s.bus.Subscribe(ctx, topic)
}

// Close does nothing.
func (s subscription) Close() error { return nil }

// inbox returns the middleware for a consumer.
func (s *service) inbox(consumer string) message.HandlerMiddleware {
	s.Helper()
	inbox, err := middleware.NewInbox(s.store, middleware.InboxConfig{Consumer: consumer}, nil)
	require.NoError(s, err)
	return inbox.Middleware
}

// payOnce consumes with an inbox.
func (s *service) payOnce(consumer string) (stop func()) {
	s.Helper()
	return s.consume(func(router *message.Router) {
		router.AddConsumerHandler("payments", "orders", subscription{s.bus}, s.pay).AddMiddleware(s.inbox(consumer))
	})
}

// payLater consumes with a queue: one handler stores, and another one pays.
func (s *service) payLater() (stop func()) {
	s.Helper()
	subscriber, err := queue.NewSubscriber(s.store, queue.Config{Tuning: postbox.Tuning{PollMax: 50 * time.Millisecond}, Transactional: true}, watermill.NopLogger{})
	require.NoError(s, err)
	return s.consume(func(router *message.Router) {
		stored := router.AddConsumerHandler("fraud-store", "orders", subscription{s.bus}, func(*message.Message) error { return nil })
		stored.AddMiddleware(middleware.Defer(s.store, "fraud"))
		router.AddConsumerHandler("fraud-check", "fraud", subscriber, s.pay).AddMiddleware(middleware.Process)
	})
}

// Covers feature 3.5.
func TestAdopt_new_service_walks_four_steps_and_back(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		s := newService(newWorld(t, database))
		g := openGuide(t, database, "A service without an outbox")
		stopConsumer := s.consume(func(router *message.Router) {
			router.AddConsumerHandler("payments", "orders", subscription{s.bus}, s.pay)
		})
		s.directly(3)
		s.paid("the service without an outbox")
		outbox := s.produce(g)
		stopConsumer()
		s.handleOnce(g, outbox)
		s.handleLater(g, outbox)
		s.operate(g)
		g.finished()
	})
}

// publishTo publishes through the outbox.
func publishTo(outbox *forwarder.Publisher) func(context.Context, *sql.Tx, *message.Message) error {
	return func(_ context.Context, _ *sql.Tx, msg *message.Message) error { return outbox.Publish("orders", msg) }
}

// produce is step 1: there, back, and there again.
func (s *service) produce(g *guide) *forwarder.Publisher {
	s.Helper()
	g.works("postbox migrate up")
	outbox := s.toOutbox()
	s.place(3, publishTo(outbox))
	require.Contains(s, g.saysNo("postbox doctor"), "outbox", "no process handles it")
	stop := s.forward(s.bus, forwarder.Config{})
	s.paid("through the outbox")
	s.eventually(func() bool { code, _ := g.run("postbox doctor"); return code == 0 }, "all is well")
	g.works("postbox check --max-age 1m")
	require.Contains(s, g.works("postbox queues"), "outbox")

	s.place(3, publishTo(outbox))
	s.directly(3)
	g.works("postbox drain --outbox outbox --timeout 5m")
	stop()
	s.paid("back: the old code, and the forwarder until the outbox is empty")

	s.forward(s.bus, forwarder.Config{})
	return outbox
}

// handleOnce is step 2.
func (s *service) handleOnce(g *guide, outbox *forwarder.Publisher) {
	s.Helper()
	store, err := inboxstore.New(s.database.Postbox(), inboxstore.Config{}, nil)
	require.NoError(s, err)
	s.Cleanup(func() { require.NoError(s, store.Close()) })
	s.store = store
	stop := s.payOnce("payments")
	before, _ := s.payments()
	repeated := message.NewMessage("repeated", []byte("order repeated"))
	for range 3 {
		require.NoError(s, s.bus.Publish("orders", repeated.Copy()))
	}
	s.placed = append(s.placed, "order repeated")
	after, _ := s.payments()
	require.Equal(s, before+1, after)

	s.broken.Store(true)
	s.place(1, publishTo(outbox))
	s.eventually(func() bool { return s.database.Count(s.T, "SELECT COUNT(*) FROM postbox_dead_letters") == 1 }, "a dead letter")
	require.Contains(s, g.works("postbox dead list"), "card declined")
	s.broken.Store(false)
	g.works("postbox dead requeue --all --yes")
	s.paid("back: what was dead is handled")
	stop()
}

// handleLater is step 3.
func (s *service) handleLater(g *guide, outbox *forwarder.Publisher) {
	s.Helper()
	stop := s.payLater()
	s.place(3, publishTo(outbox))
	s.paid("through the queue")
	require.Contains(s, g.works("postbox queues"), "fraud")
	g.works("postbox check --queue fraud --max-age 5m")

	repeated := message.NewMessage("handled by the queue", []byte("order repeated"))
	require.NoError(s, s.bus.Publish("orders", repeated.Copy()))
	g.works("postbox drain --queue fraud --timeout 10m")
	stop()
	stop = s.payOnce("queue fraud")
	before, _ := s.payments()
	require.NoError(s, s.bus.Publish("orders", repeated.Copy()))
	after, _ := s.payments()
	require.Equal(s, before, after, "back: what the queue has handled is a duplicate")
	s.place(1, publishTo(outbox))
	s.paid("back: the handler itself")
	stop()
}

// operate is step 4.
func (s *service) operate(g *guide) {
	s.Helper()
	g.works("postbox set --history 7d --yes")
	require.Contains(s, g.works("postbox set"), "168h")
	g.works("postbox set --history off --yes")
	require.NotContains(s, g.works("postbox set"), "168h")
	g.works("postbox doctor")
}
