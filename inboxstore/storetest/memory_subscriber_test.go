package storetest_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/retries"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// memorySubscriber gives the messages of a store's queues to handlers. It is a subscriber like any
// other of Watermill. Messages with the same ordering key are handled one after the other, oldest
// first; all others run concurrently. Ack means done, Nack means another attempt after a pause, and
// queue.Fail says why. Several subscriptions to one queue share its messages.
type memorySubscriber struct {
	store *memoryStore
	retry postbox.RetryProfile

	mu      sync.Mutex
	closed  bool
	stops   []context.CancelFunc
	running sync.WaitGroup
}

// defaultMaxAttempts is the same default as in queue.Config.
const defaultMaxAttempts = 15

// Subscriber returns a subscriber that retries messages with the given profile. The zero profile is
// the default of queue.Subscriber: 15 attempts, after random pauses of up to 60 s.
func (s *memoryStore) Subscriber(retry postbox.RetryProfile) (*memorySubscriber, error) {
	retry = retries.WithDefaults(retry, defaultMaxAttempts)
	if err := retries.Validate(retry); err != nil {
		return nil, fmt.Errorf("memory: invalid retry profile: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("memory: %w", postbox.ErrClosed)
	}
	subscriber := &memorySubscriber{store: s, retry: retry}
	s.subscribers = append(s.subscribers, subscriber)
	return subscriber, nil
}

// Subscribe hands out the messages of a queue until ctx ends or the subscriber is closed, and then
// closes the channel.
func (s *memorySubscriber) Subscribe(ctx context.Context, queue string) (<-chan *message.Message, error) {
	if err := spool.CheckQueue(queue); err != nil {
		return nil, fmt.Errorf("memory: subscribe: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("memory: subscribe to queue %.300q: %w", queue, postbox.ErrClosed)
	}
	ctx, stop := context.WithCancel(ctx)
	s.stops = append(s.stops, stop)
	messages := make(chan *message.Message)
	s.running.Go(func() {
		defer close(messages)
		defer stop()
		s.deliver(ctx, queue, messages)
	})
	return messages, nil
}

// Close ends all subscriptions. It waits for running handlers up to the store's close timeout. It
// can be called twice.
func (s *memorySubscriber) Close() error {
	s.mu.Lock()
	s.closed = true
	for _, stop := range s.stops {
		stop()
	}
	s.mu.Unlock()
	s.running.Wait()
	return nil
}

func (s *memorySubscriber) deliver(ctx context.Context, queue string, messages chan<- *message.Message) {
	live, end := outlive(ctx, s.store.closeTimeout)
	defer end()
	var handlers sync.WaitGroup
	defer handlers.Wait()
	for {
		taken, turn := s.store.take(ctx, live, queue, s.retry)
		if taken == nil {
			return
		}
		select {
		case messages <- turn.message:
		case <-ctx.Done():
			s.store.giveBack(queue, taken, turn)
			return
		}
		handlers.Go(func() {
			select {
			case <-turn.message.Acked():
			case <-turn.message.Nacked():
			case <-live.Done():
			}
			s.store.giveBack(queue, taken, turn)
		})
	}
}
