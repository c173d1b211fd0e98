package main

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"
)

// noisyBus is a broker that delivers some events again, after others: the consumer has long gone on
// when the duplicate comes. It counts what is under way.
type noisyBus struct {
	message.Publisher

	mu     sync.Mutex
	recent []*message.Message // published

	again     atomic.Int64 // duplicates
	expected  atomic.Int64 // deliveries
	delivered atomic.Int64 // of them, and stored
}

// late is how many events come between an event and its duplicate, and one event in four has one.
const (
	late   = 10
	fourth = 4
)

// Publish publishes the messages, and some older ones after them.
func (b *noisyBus) Publish(topic string, messages ...*message.Message) error {
	if err := b.publish(topic, messages); err != nil {
		return err
	}
	return b.publish(topic, b.duplicates(messages))
}

func (b *noisyBus) publish(topic string, messages []*message.Message) error {
	b.expected.Add(int64(len(messages))) // before they are under way, so that nobody thinks that all is quiet
	err := b.Publisher.Publish(topic, messages...)
	if err != nil {
		b.expected.Add(-int64(len(messages)))
	}
	return err
}

// duplicates remembers what was published, and returns what shall come again by now.
func (b *noisyBus) duplicates(published []*message.Message) (again []*message.Message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, msg := range published {
		b.recent = append(b.recent, msg.Copy())
	}
	for len(b.recent) > late {
		if rand.IntN(fourth) == 0 { //nolint:gosec // any dice will do
			again = append(again, b.recent[0])
		}
		b.recent = b.recent[1:]
	}
	b.again.Add(int64(len(again)))
	return again
}

// countDelivery is a middleware.
func (b *noisyBus) countDelivery(next message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		produced, err := next(msg)
		if err == nil && message.SubscribeTopicFromCtx(msg.Context()) == activityDone {
			b.delivered.Add(1)
		}
		return produced, err
	}
}

var errMishap = errors.New("this handler fails after it has written")

// mishap lets handlers fail at random, and counts what others get done while a failed activity
// waits for its next attempt.
type mishap struct {
	half    int
	halfway chan struct{} // closed when so many are applied

	mu        sync.Mutex
	applied   int
	failedAt  map[string]int // what was applied when an activity failed first
	failures  int
	meanwhile int
}

func newMishap(half int) *mishap {
	return &mishap{half: half, halfway: make(chan struct{}), failedAt: map[string]int{}}
}

// strike fails one time in eight.
func (m *mishap) strike(id string) error {
	const eighth = 8
	m.mu.Lock()
	defer m.mu.Unlock()
	at, failed := m.failedAt[id]
	if rand.IntN(eighth) == 0 { //nolint:gosec // any dice will do
		m.failures++
		if !failed {
			m.failedAt[id] = m.applied
		}
		return errMishap
	}
	if failed {
		m.meanwhile += m.applied - at
	}
	if m.applied++; m.applied == m.half {
		close(m.halfway)
	}
	return nil
}
