package memstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// entry is a message in a queue.
type entry struct {
	key      inboxstore.Key
	message  *message.Message // never handed out, only copies of it
	due      time.Time
	failures []error
	inFlight bool
}

// DeadLetter is a message that is not tried again.
type DeadLetter struct {
	// Queue in which the message stood; empty for one that [Store.Bury] wrote.
	Queue string
	// Key under which the message was claimed.
	Key     inboxstore.Key
	Message *message.Message
	// Attempts that failed.
	Attempts int
	// Err is why the last one did.
	Err error
	// Failures that were recorded, oldest first.
	Failures []error
}

// Pending is a message in a queue that is neither done nor dead.
type Pending struct {
	Key     inboxstore.Key
	Message *message.Message
	// Due is when the message may be handled, by the clock that [Store.Advance] moves.
	Due time.Time
	// Attempts that failed.
	Attempts int
	// InFlight says that a handler has it.
	InFlight bool
}

// Defer stores a message in a queue, once, for a [Subscriber]. It obeys the metadata of Watermill's components/delay.
func (s *Store) Defer(ctx context.Context, queue string, key inboxstore.Key, msg *message.Message) (fresh bool, err error) {
	var wanted spool.Draft
	if err := wanted.SetDelay(msg.Metadata); err != nil {
		return false, fmt.Errorf("memstore: defer message: %w", err)
	}
	stored := &entry{key: key, message: clone(msg)}
	return s.once(ctx, key, nothing, func() {
		stored.due = wanted.Due
		if stored.due.IsZero() {
			stored.due = s.now().Add(wanted.Delay)
		}
		s.queues[queue] = append(s.queues[queue], stored)
		s.wake()
	})
}

// Pending returns the messages of a queue that are neither done nor dead, oldest first.
func (s *Store) Pending(queue string) []Pending {
	s.mu.Lock()
	defer s.mu.Unlock()
	pending := make([]Pending, len(s.queues[queue]))
	for i, e := range s.queues[queue] {
		pending[i] = Pending{Key: e.key, Message: clone(e.message), Due: e.due, Attempts: len(e.failures), InFlight: e.inFlight}
	}
	return pending
}

// DeadLetters returns the dead letters of the store, in the order in which they died.
func (s *Store) DeadLetters() []DeadLetter {
	s.mu.Lock()
	defer s.mu.Unlock()
	letters := slices.Clone(s.dead)
	for i := range letters {
		letters[i].Message, letters[i].Failures = clone(letters[i].Message), slices.Clone(letters[i].Failures)
	}
	return letters
}

// Advance moves the clock of the store forward, so that delayed messages and those that wait for another attempt
// become due without waiting. The clock runs with that of the machine otherwise.
func (s *Store) Advance(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead += d
	s.wake()
}

// now is the time by the clock of the store. The caller holds the lock, as for all that follows.
func (s *Store) now() time.Time { return time.Now().Add(s.ahead) }

// wake lets all subscriptions look again.
func (s *Store) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// take waits for a message that may be handled, and marks it as in flight. It returns nil when ctx has ended.
func (s *Store) take(ctx context.Context, queue string) *entry {
	for {
		s.mu.Lock()
		next, due := s.next(queue)
		changed, wait := s.changed, due.Sub(s.now())
		if next != nil && ctx.Err() == nil {
			next.inFlight = true
			s.mu.Unlock()
			return next
		}
		s.mu.Unlock()
		var timer <-chan time.Time
		if !due.IsZero() {
			timer = time.After(wait)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-timer:
		}
	}
}

// next finds the oldest message that may be handled now. Without one, it tells when the next is due, zero for never. A
// message that is handled, or has failed, holds back those behind it with the same ordering key; one that is delayed
// does not.
func (s *Store) next(queue string) (next *entry, due time.Time) {
	now, held := s.now(), map[string]bool{}
	for _, e := range s.queues[queue] {
		orderingKey := e.message.Metadata.Get(postbox.OrderingKey)
		if held[orderingKey] {
			continue
		}
		if !e.inFlight {
			if !e.due.After(now) {
				return e, time.Time{}
			}
			if due.IsZero() || e.due.Before(due) {
				due = e.due
			}
		}
		held[orderingKey] = orderingKey != "" && (e.inFlight || len(e.failures) > 0)
	}
	return nil, due
}

// done removes a message that was handled.
func (s *Store) done(queue string, e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(queue, e)
	s.wake()
}

// failed lets a message wait for another attempt, or moves it to the dead letters.
func (s *Store) failed(queue string, e *entry, retry postbox.RetryProfile, cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.failures = append(e.failures, cause)
	e.inFlight = false
	e.due = s.now().Add(retry.Delay(len(e.failures)))
	if retry.Exhausted(len(e.failures)) {
		s.remove(queue, e)
		s.dead = append(s.dead, DeadLetter{
			Queue: queue, Key: e.key, Message: e.message, Attempts: len(e.failures), Err: cause, Failures: e.failures,
		})
	}
	s.wake()
}

// putBack leaves a message as it was before it was taken.
func (s *Store) putBack(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.inFlight = false
	s.wake()
}

func (s *Store) remove(queue string, e *entry) {
	s.queues[queue] = slices.DeleteFunc(s.queues[queue], func(other *entry) bool { return other == e })
}

// clone copies a message with its payload, which Copy shares.
func clone(msg *message.Message) *message.Message {
	c := msg.Copy()
	c.Payload = slices.Clone(msg.Payload)
	return c
}
