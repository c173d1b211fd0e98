package memstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/report"
	"github.com/postbox-go/watermill-postbox/internal/retries"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// entry is a message in a queue.
type entry struct {
	key      inboxstore.Key
	message  *message.Message // never handed out: handlers get copies
	due      time.Time
	failures []error
	out      *turn // nil while no handler has it
}

// turn is one attempt to handle a message.
type turn struct {
	message *message.Message
	retry   postbox.RetryProfile
	cause   func() error // returns the reason of a nack
	end     context.CancelFunc
}

// DeadLetter is a message that is not tried again.
type DeadLetter struct {
	// Queue is the queue of the message; empty for a letter that [Store.Bury] wrote.
	Queue string
	// Key is the key under which the message was claimed.
	Key     inboxstore.Key
	Message *message.Message
	// Attempts is the number of attempts that failed.
	Attempts int
	// Err is the error of the last attempt.
	Err error
	// Failures are the recorded errors, oldest first.
	Failures []error
}

// Pending is a message in a queue that is neither done nor dead.
type Pending struct {
	Key     inboxstore.Key
	Message *message.Message
	// Due is when the message may be handled, by the clock that [Store.Advance] moves.
	Due time.Time
	// Attempts is the number of attempts that failed.
	Attempts int
	// InFlight is true while a handler has the message.
	InFlight bool
}

// Defer stores a message in a queue, once, for a [Subscriber]. A message without a UUID is stored
// under the key's message id. Delays set with Watermill's components/delay are applied. A delay
// that cannot be read is a [postbox.PermanentError].
func (s *Store) Defer(ctx context.Context, queue string, key inboxstore.Key, msg *message.Message) (fresh bool, err error) {
	if err := spool.CheckQueue(queue); err != nil {
		return false, fmt.Errorf("memstore: defer message: %w", err)
	}
	if msg == nil {
		return false, fmt.Errorf("memstore: defer message: %w", errNilMessage)
	}
	var wanted spool.Draft
	if err := wanted.SetDelay(msg.Metadata); err != nil {
		return false, fmt.Errorf("memstore: defer message: %w", postbox.Permanent(err))
	}
	stored := &entry{key: key, message: clone(msg)}
	stored.message.UUID = cmp.Or(msg.UUID, key.MessageID)
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
	s.settleAnswered()
	pending := make([]Pending, len(s.queues[queue]))
	for i, e := range s.queues[queue] {
		pending[i] = Pending{Key: e.key, Message: clone(e.message), Due: e.due, Attempts: len(e.failures), InFlight: e.out != nil}
	}
	return pending
}

// DeadLetters returns the dead letters of the store, in the order in which they were buried.
func (s *Store) DeadLetters() []DeadLetter {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settleAnswered()
	letters := slices.Clone(s.dead)
	for i := range letters {
		letters[i].Message, letters[i].Failures = clone(letters[i].Message), slices.Clone(letters[i].Failures)
	}
	return letters
}

// Advance moves the clock of the store forward, so that delayed messages and messages that wait for
// another attempt become due immediately. Otherwise the clock runs with the clock of the machine.
// Acks and nacks before the call take effect before the clock moves.
func (s *Store) Advance(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settleAnswered() // otherwise the pause of a message that was nacked just now would begin after the advance
	s.ahead += d
	s.wake()
}

// now returns the time by the clock of the store. The caller holds the lock, as for all functions
// below.
func (s *Store) now() time.Time { return time.Now().Add(s.ahead) }

// wake makes all subscriptions look for messages again.
func (s *Store) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// take waits for a message that may be handled, and begins its attempt with a context that ends
// with live. It returns nil when ctx has ended.
func (s *Store) take(ctx, live context.Context, queue string, retry postbox.RetryProfile) (*entry, *turn) {
	for ctx.Err() == nil {
		s.mu.Lock()
		next, due := s.next(queue)
		if next != nil {
			out := newTurn(live, next, retry)
			next.out = out
			s.mu.Unlock()
			return next, out
		}
		changed, wait := s.changed, due.Sub(s.now())
		s.mu.Unlock()
		var timer <-chan time.Time
		if !due.IsZero() {
			timer = time.After(wait)
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-timer:
		}
	}
	return nil, nil
}

func newTurn(live context.Context, e *entry, retry postbox.RetryProfile) *turn {
	live, end := context.WithCancel(live) // Watermill: a message's context ends with its ack
	live, reported := report.New(live)
	msg := clone(e.message)
	msg.SetContext(live)
	return &turn{message: msg, retry: retry, cause: reported.Cause, end: end}
}

// next finds the oldest message that may be handled now. If there is none, it returns when the next
// message is due, zero for never. A message that is being handled, or has failed, holds back later
// messages with the same ordering key. A delayed message does not.
func (s *Store) next(queue string) (next *entry, due time.Time) {
	now, held := s.now(), map[string]bool{}
	for _, e := range s.queues[queue] {
		orderingKey := e.message.Metadata.Get(postbox.MetadataOrderingKey)
		if held[orderingKey] {
			continue
		}
		if e.out == nil {
			if !e.due.After(now) {
				return e, time.Time{}
			}
			if due.IsZero() || e.due.Before(due) {
				due = e.due
			}
		}
		held[orderingKey] = orderingKey != "" && (e.out != nil || len(e.failures) > 0)
	}
	return nil, due
}

// settleAnswered settles the messages that were acked or nacked, so that the next reader sees the
// result.
func (s *Store) settleAnswered() {
	for queue, entries := range s.queues {
		for _, e := range slices.Clone(entries) {
			if e.out != nil {
				s.settle(queue, e)
			}
		}
	}
}

// settle ends the attempt of a message that was acked or nacked. It leaves other messages
// unchanged.
func (s *Store) settle(queue string, e *entry) {
	select {
	case <-e.out.message.Acked():
		s.remove(queue, e)
	case <-e.out.message.Nacked():
		s.failed(queue, e, e.out)
	default:
		return
	}
	s.endTurn(e)
}

// failed schedules another attempt for a message, or moves it to the dead letters.
func (s *Store) failed(queue string, e *entry, out *turn) {
	cause := out.cause()
	outcome := drain.OutcomeOf(cause)
	e.failures = append(e.failures, cause)
	if outcome.Verdict == spool.Dead || retries.Exhausted(out.retry, len(e.failures)) {
		s.remove(queue, e)
		s.dead = append(s.dead, DeadLetter{
			Queue: queue, Key: e.key, Message: e.message, Attempts: len(e.failures), Err: cause, Failures: e.failures,
		})
		return
	}
	pause := outcome.After
	if pause <= 0 {
		pause = retries.Delay(out.retry, len(e.failures))
	}
	e.due = s.now().Add(pause)
}

// endTurn makes a message available to other handlers.
func (s *Store) endTurn(e *entry) {
	e.out.end()
	e.out = nil
	s.wake()
}

// giveBack ends an attempt: with its ack or nack, or as if the attempt had not begun.
func (s *Store) giveBack(queue string, e *entry, out *turn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.out == out { // otherwise the attempt has been settled by now, and the message may have been handed out again
		s.settle(queue, e)
	}
	if e.out == out {
		s.endTurn(e)
	}
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
