package pipeline_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/middleware"
)

// service is one process of the consuming service. Its router can be stopped and started again.
type service struct {
	world  *world
	logger watermill.LoggerAdapter
	faults *faults
	store  *inboxstore.Store
	inbox  *middleware.Inbox
	outbox *forwarder.Publisher

	router *message.Router
	ended  chan error
}

// newService builds on a handle of its own, as a process has it.
func newService(w *world, db *sql.DB, logger watermill.LoggerAdapter) (*service, error) {
	s := &service{world: w, logger: logger, faults: &faults{attempts: map[string]int{}}}
	var err error
	if s.store, err = inboxstore.New(w.consumer.On(db), inboxstore.Config{}, logger); err != nil {
		return nil, err
	}
	if s.outbox, err = forwarder.NewPublisher(w.consumer.On(db), forwarder.PublisherConfig{}, logger); err != nil {
		return nil, err
	}
	s.inbox, err = middleware.NewInbox(s.store, middleware.InboxConfig{
		Outbox: s.outbox, Retry: postbox.RetryProfile{Base: time.Millisecond, Cap: 10 * time.Millisecond},
	}, logger)
	return s, err
}

// start runs a new router and returns when it has subscribed.
func (s *service) start() error {
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: patience}, s.logger)
	if err != nil {
		return err
	}
	subscribers := map[string]message.Subscriber{}
	for _, consumer := range consumers {
		if subscribers[consumer], err = s.world.broker.subscriber(consumer); err != nil {
			return fmt.Errorf("subscribe %s: %w", consumer, err)
		}
	}
	// The router closes a handler's publisher as soon as the handler ends; the outbox is used
	// again.
	outbox := forwarder.KeepOpen(s.outbox)
	router.AddHandler("ledger", s.world.orders, subscribers["ledger"], s.world.receipts, outbox, s.apply("ledger")).
		AddMiddleware(s.inbox.Middleware)
	router.AddConsumerHandler("audit", s.world.orders, subscribers["audit"], s.applyOnly("audit")).
		AddMiddleware(s.inbox.Middleware)
	router.AddConsumerHandler("mail", s.world.receipts, subscribers["mail"], s.applyOnly("mail")).
		AddMiddleware(s.inbox.Middleware)

	ended := make(chan error, 1)
	go func() { ended <- router.Run(context.Background()) }()
	select {
	case <-router.Running():
	case err := <-ended:
		return fmt.Errorf("run the router: %w", err)
	}
	s.router, s.ended = router, ended
	return nil
}

// stop closes the router, while it works.
func (s *service) stop() error {
	return errors.Join(s.router.Close(), <-s.ended)
}

// close ends what start and stop leave alone.
func (s *service) close() error {
	return errors.Join(s.outbox.Close(), s.store.Close())
}

// apply is a handler: it writes its effect, may fail after that, and returns a message with the
// same id.
func (s *service) apply(consumer string) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		if err := s.applyOnly(consumer)(msg); err != nil {
			return nil, err
		}
		receipt := message.NewMessage(msg.UUID, msg.Payload)
		receipt.Metadata.Set(postbox.MetadataOrderingKey, msg.Metadata.Get(postbox.MetadataOrderingKey))
		return []*message.Message{receipt}, nil
	}
}

func (s *service) applyOnly(consumer string) message.NoPublishHandlerFunc {
	insert := s.world.consumer.Bind("INSERT INTO effects (consumer, ordering_key, seq) VALUES (?, ?, ?)")
	return func(msg *message.Message) error {
		tx, ok := postbox.TxFromContext(msg.Context())
		if !ok {
			return postbox.Permanent(errors.New("the inbox gave no transaction"))
		}
		var o order
		if err := json.Unmarshal(msg.Payload, &o); err != nil {
			return postbox.Permanent(err)
		}
		if _, err := tx.ExecContext(msg.Context(), insert, consumer, o.Key, o.Seq); err != nil {
			return err
		}
		return s.faults.after(msg.Context(), tx, consumer+msg.UUID, o.Seq)
	}
}

// faults make handlers fail at the first attempt of some messages, in several ways.
type faults struct {
	mu       sync.Mutex
	attempts map[string]int
	injected atomic.Int64
}

func (f *faults) after(ctx context.Context, tx *sql.Tx, message string, seq int) error {
	f.mu.Lock()
	f.attempts[message]++
	first := f.attempts[message] == 1
	f.mu.Unlock()
	if !first {
		return nil
	}
	switch seq % 12 {
	case 1:
		f.injected.Add(1)
		return errors.New("the handler fails")
	case 5:
		f.injected.Add(1)
		panic("the handler panics")
	case 8:
		f.injected.Add(1)
		_, err := tx.ExecContext(ctx, "INSERT INTO no_such_table VALUES (1)") // aborts the transaction on PostgreSQL
		return err
	}
	return nil
}

// relay is one process that forwards an outbox to the broker.
type relay struct {
	forwarder *forwarder.Forwarder
	publisher message.Publisher
	ended     chan error
}

// startRelay forwards from the database, through a handle of its own. Its lease is the shortest
// that there is, as some tests kill processes and wait for it.
func startRelay(b broker, database *testdb.Database, db *sql.DB, decorate message.PublisherDecorator, logger watermill.LoggerAdapter) (*relay, error) {
	publisher, err := b.publisher()
	if err != nil {
		return nil, err
	}
	r := &relay{publisher: publisher, ended: make(chan error, 1)}
	to := publisher
	if decorate != nil {
		if to, err = decorate(publisher); err != nil {
			return nil, err
		}
	}
	r.forwarder, err = forwarder.New(database.On(db), to, forwarder.Config{
		Classify: b.classify, BatchSize: b.batchSize, Tuning: postbox.Tuning{Lease: time.Second, PollMax: 50 * time.Millisecond, ProbeMin: time.Millisecond, ProbeMax: 20 * time.Millisecond},
		Retry: postbox.RetryProfile{Base: time.Millisecond, Cap: 10 * time.Millisecond},
	}, logger)
	if err != nil {
		return nil, err
	}
	go func() { r.ended <- r.forwarder.Run(context.Background()) }()
	return r, nil
}

// stop closes the forwarder, while it works.
func (r *relay) stop() error {
	return errors.Join(r.forwarder.Close(), <-r.ended, r.publisher.Close())
}
