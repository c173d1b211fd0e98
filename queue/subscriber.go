package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/health"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/given"
	"github.com/postbox-go/watermill-postbox/internal/inbox"
	"github.com/postbox-go/watermill-postbox/internal/lifecycle"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Subscriber gives the messages of a queue, stored by [inboxstore.Store.Defer], to a handler, one
// by one. It is a subscriber like any other of Watermill, and the topic is the name of the queue.
// Ack means done, Nack means another attempt after a pause; [Fail] says why. Subscribers in any
// number of processes share a queue, and each adds throughput.
//
// Handlers may take hours: no time-out ends them unless one is configured. After a crash, a message
// that was being handled is handled again once the lease has expired. With [Config.Transactional]
// the handler's writes have been rolled back by then. A message that repeatedly crashes its process
// becomes a dead letter like any other that fails.
type Subscriber struct {
	core   *inbox.Core
	config Config
	logger watermill.LoggerAdapter

	mu      sync.Mutex
	closed  bool
	queues  []*queue // of all subscriptions, except for those that ended without an error
	closing chan struct{}
	running sync.WaitGroup
}

// NewSubscriber returns a subscriber over the queues of a store. A nil logger logs nothing.
func NewSubscriber(store *inboxstore.Store, config Config, logger watermill.LoggerAdapter) (*Subscriber, error) {
	if store == nil || inbox.CoreOf(store) == nil {
		return nil, errors.New("queue subscriber: the store is nil, or was not made by inboxstore.New")
	}
	config.setDefaults()
	if err := config.validate(inbox.CoreOf(store).Statements.Kind); err != nil {
		return nil, fmt.Errorf("queue subscriber: invalid config: %w", err)
	}
	if given.Nil(logger) {
		logger = watermill.NopLogger{}
	}
	return &Subscriber{core: inbox.CoreOf(store), config: config, logger: logger, closing: make(chan struct{})}, nil
}

// Subscribe processes a queue until ctx ends or the subscriber is closed. Then it waits for running
// handlers and closes the channel. If the database is unavailable, it waits. If the queue cannot be
// processed, because its tables are missing, Subscribe returns the error, and so does Run of a
// router. If the problem appears later, the error is logged and the channel is closed, and Run of
// package router stops and returns the error.
func (s *Subscriber) Subscribe(ctx context.Context, queue string) (<-chan *message.Message, error) {
	if err := spool.CheckQueue(queue); err != nil {
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	delivery := newDelivery(ctx, s.core, queue, s.config, s.logger)
	if err := lifecycle.Check(ctx, delivery.queue); err != nil {
		cancel()
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		cancel()
		return nil, fmt.Errorf("subscribe to queue %.300q: %w", queue, postbox.ErrClosed)
	}
	s.follow(delivery.queue)
	s.running.Go(func() {
		defer close(delivery.messages)
		defer cancel()
		if err := delivery.queue.run(ctx); err != nil {
			s.logger.Error("Postbox cannot process a queue", err, watermill.LogFields{"queue": queue})
			lifecycle.Fail(ctx, err)
			return
		}
		s.forget(delivery.queue)
	})
	s.running.Go(func() {
		select {
		case <-s.closing:
			cancel()
		case <-ctx.Done():
		}
	})
	return delivery.messages, nil
}

// follow begins the report on a subscription, in place of those of the same queue that have failed.
func (s *Subscriber) follow(begun *queue) {
	s.queues = append(slices.DeleteFunc(s.queues, func(q *queue) bool {
		return q.name == begun.name && q.drainer.Health().Phase == health.Stopped
	}), begun)
}

// forget ends the report on a subscription that has ended as it was told to.
func (s *Subscriber) forget(ended *queue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queues = slices.DeleteFunc(s.queues, func(q *queue) bool { return q == ended })
}

// Health tells whether each subscription works, for package health. A subscriber without a
// subscription reports that it was not started, also when its subscriptions have ended.
func (s *Subscriber) Health() []health.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queues) == 0 {
		return []health.State{{Name: "queue subscriber"}}
	}
	states := make([]health.State, len(s.queues))
	for i, q := range s.queues {
		states[i] = q.health()
	}
	return states
}

// SubscribeInitialize registers the queue, so that messages stored in it count before the first
// subscription.
func (s *Subscriber) SubscribeInitialize(queue string) error {
	if err := spool.CheckQueue(queue); err != nil {
		return fmt.Errorf("initialize: %w", err)
	}
	if _, err := s.core.Spool(queue).Open(context.Background(), s.core.DB); err != nil {
		return fmt.Errorf("initialize queue %.300q: %w", queue, err)
	}
	return nil
}

// Close ends all subscriptions. It waits for running handlers up to the store's close timeout. It
// can be called twice.
func (s *Subscriber) Close() error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.closing)
	}
	s.mu.Unlock()
	s.running.Wait()
	return nil
}
