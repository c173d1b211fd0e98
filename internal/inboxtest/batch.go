package inboxtest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/queue"
)

// Quick is a configuration for impatient tests.
func Quick(change func(*queue.Config)) queue.Config {
	config := queue.Config{
		Tuning: postbox.Tuning{PollMin: time.Millisecond, PollMax: 20 * time.Millisecond, Lease: 5 * time.Second, ProbeMin: 5 * time.Millisecond, ProbeMax: 20 * time.Millisecond},
		Retry:  postbox.RetryProfile{Attempts: 3, Base: time.Millisecond, Cap: 5 * time.Millisecond},
	}
	if change != nil {
		change(&config)
	}
	return config
}

// Transactional lets the handlers of a queue work in transactions.
func Transactional(c *queue.Config) { c.Transactional = true }

// Process is a subscriber at work, with handlers that say why they fail.
type Process struct {
	*queue.Subscriber
	serving sync.WaitGroup
}

// Start works the queue off until the test ends.
func (b *Bench) Start(config queue.Config, handle func(msg *message.Message) error) *Process {
	b.T.Helper()
	subscriber, err := queue.NewSubscriber(b.Store, config, b.Logger)
	require.NoError(b.T, err)
	messages, err := subscriber.Subscribe(context.Background(), "q")
	require.NoError(b.T, err)
	p := &Process{Subscriber: subscriber}
	p.serving.Go(func() {
		for msg := range messages {
			p.serving.Go(func() {
				if err := handle(msg); err != nil {
					queue.Fail(msg.Context(), err)
					msg.Nack()
					return
				}
				msg.Ack()
			})
		}
	})
	b.T.Cleanup(p.Stop)
	return p
}

// Stop can be called twice.
func (p *Process) Stop() {
	_ = p.Close()
	p.serving.Wait()
}

// QuickBatch is a configuration for impatient tests: whatever has been read is a batch at once.
func QuickBatch(change func(*queue.BatchConfig)) queue.BatchConfig {
	config := queue.BatchConfig{Age: time.Microsecond, Worker: Quick(nil)}
	if change != nil {
		change(&config)
	}
	return config
}

// BatchProcess is a batch handler at work.
type BatchProcess struct {
	*queue.Batch
	done chan error
}

// Batch works the queue off in batches until the test ends.
func (b *Bench) Batch(config queue.BatchConfig, handle queue.BatchHandler) *BatchProcess {
	b.T.Helper()
	batch, err := queue.NewBatch(b.Store, "q", handle, config, b.Logger)
	require.NoError(b.T, err)
	p := &BatchProcess{Batch: batch, done: make(chan error, 1)}
	go func() { p.done <- batch.Run(context.Background()) }()
	b.T.Cleanup(func() {
		require.NoError(b.T, p.Close())
		require.NoError(b.T, <-p.done)
	})
	return p
}

// BatchEffects writes one for each message, in the transaction that the context carries.
func (b *Bench) BatchEffects(ctx context.Context, messages []*message.Message) error {
	for _, msg := range messages {
		if err := b.Effect(ctx, msg); err != nil {
			return err
		}
	}
	return nil
}

// SubscriberFor returns a subscriber with three attempts and short pauses.
func SubscriberFor(t *testing.T, store *inboxstore.Store) *queue.Subscriber {
	t.Helper()
	subscriber, err := queue.NewSubscriber(store, queue.Config{
		Retry: postbox.RetryProfile{Attempts: 3, Base: time.Millisecond, Cap: 5 * time.Millisecond}, Tuning: postbox.Tuning{Lease: 2 * time.Second},
	}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, subscriber.Close()) })
	return subscriber
}
