package inboxstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Defaults of the settings in [SubscriberConfig], which explains them.
const (
	DefaultConcurrency = 16
	DefaultMaxAttempts = 15
	DefaultPageSize    = 500
	DefaultPollMin     = 5 * time.Millisecond
	DefaultPollMax     = time.Second
	DefaultLease       = 15 * time.Second
)

// ErrNacked is what the failure record says of a message that its handler nacked.
var ErrNacked = errors.New("the handler nacked the message")

// SubscriberConfig says how a queue is worked off.
type SubscriberConfig struct {
	// Concurrency is the number of messages that are handled at a time. Messages with the same ordering key are
	// handled one after the other, oldest first, across all processes. Defaults to 16.
	Concurrency int
	// Retry says how often and after which pauses a message is handled again. Defaults to 15 attempts, from 1 s to 60 s
	// apart.
	Retry postbox.RetryProfile
	// Lease is how long the lanes of a crashed process stay its own. Defaults to 15 s.
	Lease time.Duration
}

func (c *SubscriberConfig) setDefaults() {
	c.Concurrency = cmp.Or(c.Concurrency, DefaultConcurrency)
	c.Retry = c.Retry.WithDefaults(DefaultMaxAttempts)
	c.Lease = cmp.Or(c.Lease, DefaultLease)
}

// Validate returns all that is wrong with the configuration.
func (c SubscriberConfig) Validate() error {
	var problems []error
	if c.Concurrency < 1 {
		problems = append(problems, fmt.Errorf("Concurrency: %d is not positive", c.Concurrency))
	}
	if err := c.Retry.Validate(); err != nil {
		problems = append(problems, fmt.Errorf("Retry: %w", err))
	}
	if c.Lease < time.Second {
		problems = append(problems, fmt.Errorf("Lease: %s is less than a second, which a slow moment of the database may last", c.Lease))
	}
	return errors.Join(problems...)
}

// Subscriber gives the messages of a queue, stored by [Store.Defer], to a handler: it is a subscriber like any
// other of Watermill. Ack means done, Nack means another attempt after a pause. Handlers may take hours: the
// lease follows the process, not the handler. Subscribers in any number of processes share a queue.
//
// A message is handled at least once. A crash between the end of the handler and the note in the database handles
// it again.
type Subscriber struct {
	store  *Store
	config SubscriberConfig
	logger watermill.LoggerAdapter

	mu      sync.Mutex
	closed  bool
	closing chan struct{}
	running sync.WaitGroup
}

// NewSubscriber returns a subscriber over the queues of a store. A nil logger logs nothing.
func NewSubscriber(store *Store, config SubscriberConfig, logger watermill.LoggerAdapter) (*Subscriber, error) {
	if store == nil {
		return nil, errors.New("inbox subscriber: the store is nil")
	}
	config.setDefaults()
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("inbox subscriber: invalid config: %w", err)
	}
	if logger == nil {
		logger = watermill.NopLogger{}
	}
	return &Subscriber{store: store, config: config, logger: logger, closing: make(chan struct{})}, nil
}

// Subscribe works off a queue until ctx ends or the subscriber is closed, and then closes the channel.
func (s *Subscriber) Subscribe(ctx context.Context, queue string) (<-chan *message.Message, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("subscribe to queue %q: %w", queue, postbox.ErrClosed)
	}
	ctx, cancel := context.WithCancel(ctx)
	handler := &delivery{messages: make(chan *message.Message), stopping: ctx.Done()}
	drainer := spool.NewDrainer(s.store.db, s.store.queue(queue), handler, s.drainerConfig(), s.logger)
	s.running.Go(func() {
		defer close(handler.messages)
		defer cancel()
		if err := drainer.Run(ctx); err != nil {
			s.logger.Error("Postbox cannot work off a queue", err, watermill.LogFields{"queue": queue})
		}
	})
	s.running.Go(func() {
		select {
		case <-s.closing:
			cancel()
		case <-ctx.Done():
		}
	})
	return handler.messages, nil
}

func (s *Subscriber) drainerConfig() spool.Config {
	process := spool.ProcessName()
	return spool.Config{
		Holder: process + " " + postbox.NewMessageID(), Process: process,
		PageSize: DefaultPageSize, InlineBytes: spool.InlineBytes, Workers: s.config.Concurrency, BatchSize: 1,
		PollMin: DefaultPollMin, PollMax: DefaultPollMax, Lease: s.config.Lease, Renew: s.config.Lease / spool.LeaseRenewals,
		Retry: s.config.Retry,
		Close: s.store.config.CloseTimeout,
	}
}

// Close ends all subscriptions, after the handlers under way up to the store's close timeout. It can be called
// twice.
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

// delivery is the handler of a queue's spool: it hands a message out and waits for its ack.
type delivery struct {
	messages chan *message.Message
	stopping <-chan struct{} // from then on nobody takes messages
}

// Excluded lists nothing: a queue has one topic.
func (d *delivery) Excluded() []string { return nil }

// Handle delivers a batch, which is one message.
func (d *delivery) Handle(ctx context.Context, batch []*spool.Message) []spool.Outcome {
	outcomes := make([]spool.Outcome, len(batch))
	for i, stored := range batch {
		outcomes[i] = d.deliver(ctx, stored)
	}
	return outcomes
}

func (d *delivery) deliver(ctx context.Context, stored *spool.Message) spool.Outcome {
	msg := message.NewMessage(stored.MessageID, stored.Payload)
	msg.Metadata = stored.Metadata
	ctx, cancel := context.WithCancel(ctx) // Watermill: a message's context ends with its ack
	defer cancel()
	msg.SetContext(ctx)
	select {
	case d.messages <- msg:
	case <-d.stopping:
		return spool.Outcome{Verdict: spool.Postpone}
	}
	select {
	case <-msg.Acked():
		return spool.Outcome{Verdict: spool.Done}
	case <-msg.Nacked():
		return spool.Outcome{Verdict: spool.Retry, Err: ErrNacked}
	case <-ctx.Done():
		return spool.Outcome{Verdict: spool.Postpone}
	}
}
