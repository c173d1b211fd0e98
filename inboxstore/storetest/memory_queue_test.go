package storetest_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/inboxstore/storetest"
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

// Defer stores a message in a queue, once, for a subscriber. A message without a UUID is stored
// under the key's message id. Delays set with Watermill's components/delay are applied. A delay
// that cannot be read is a [postbox.Permanent] error.
func (s *memoryStore) Defer(ctx context.Context, queue string, key inboxstore.Key, msg *message.Message) (fresh bool, err error) {
	if err := spool.CheckQueue(queue); err != nil {
		return false, fmt.Errorf("memory: defer message: %w", err)
	}
	if msg == nil {
		return false, fmt.Errorf("memory: defer message: %w", errNilMessage)
	}
	var wanted spool.Draft
	if err := wanted.SetDelay(msg.Metadata); err != nil {
		return false, fmt.Errorf("memory: defer message: %w", postbox.Permanent(err))
	}
	stored := &entry{key: key, message: clone(msg)}
	stored.message.UUID = cmp.Or(msg.UUID, key.MessageID)
	return s.once(ctx, key, nothing, func() {
		stored.due = wanted.Due
		if stored.due.IsZero() {
			stored.due = time.Now().Add(wanted.Delay)
		}
		s.queues[queue] = append(s.queues[queue], stored)
		s.wake()
	})
}

// Pending returns the messages of a queue that are neither done nor dead, oldest first.
func (s *memoryStore) Pending(queue string) (pending []storetest.Pending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settleAnswered()
	for _, e := range s.queues[queue] {
		pending = append(pending, storetest.Pending{MessageID: e.message.UUID, Attempts: len(e.failures)})
	}
	return pending
}

// DeadLetters returns the dead letters of the store, in the order in which they were buried.
func (s *memoryStore) DeadLetters() []storetest.DeadLetter {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settleAnswered()
	return slices.Clone(s.dead)
}

// bury adds a dead letter. The caller holds the lock, as for all functions below.
func (s *memoryStore) bury(queue string, key inboxstore.Key, msg *message.Message, attempts int, cause error, failures []error) {
	letter := storetest.DeadLetter{
		Queue: queue, Consumer: key.Consumer, Topic: key.Topic, MessageID: msg.UUID, Payload: slices.Clone(msg.Payload), Metadata: maps.Clone(msg.Metadata),
		Attempts: attempts, Error: text(cause),
	}
	for _, failure := range failures {
		letter.Failures = append(letter.Failures, text(failure))
	}
	s.dead = append(s.dead, letter)
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// wake makes all subscriptions look for messages again.
func (s *memoryStore) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// take waits for a message that may be handled, and begins its attempt with a context that ends
// with live. It returns nil when ctx has ended.
func (s *memoryStore) take(ctx, live context.Context, queue string, retry postbox.RetryProfile) (*entry, *turn) {
	for ctx.Err() == nil {
		s.mu.Lock()
		next, due := s.next(queue)
		if next != nil {
			out := newTurn(live, next, retry)
			next.out = out
			s.mu.Unlock()
			return next, out
		}
		changed, wait := s.changed, time.Until(due)
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
func (s *memoryStore) next(queue string) (next *entry, due time.Time) {
	now, held := time.Now(), map[string]bool{}
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
func (s *memoryStore) settleAnswered() {
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
func (s *memoryStore) settle(queue string, e *entry) {
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
func (s *memoryStore) failed(queue string, e *entry, out *turn) {
	cause := out.cause()
	outcome := drain.OutcomeOf(cause)
	e.failures = append(e.failures, cause)
	if outcome.Verdict == spool.Dead || retries.Exhausted(out.retry, len(e.failures)) {
		s.remove(queue, e)
		s.bury(queue, e.key, e.message, len(e.failures), cause, e.failures)
		return
	}
	pause := outcome.After
	if pause <= 0 {
		pause = retries.Delay(out.retry, len(e.failures))
	}
	e.due = time.Now().Add(pause)
}

// endTurn makes a message available to other handlers.
func (s *memoryStore) endTurn(e *entry) {
	e.out.end()
	e.out = nil
	s.wake()
}

// giveBack ends an attempt: with its ack or nack, or as if the attempt had not begun.
func (s *memoryStore) giveBack(queue string, e *entry, out *turn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.out == out { // otherwise the attempt has been settled by now, and the message may have been handed out again
		s.settle(queue, e)
	}
	if e.out == out {
		s.endTurn(e)
	}
}

func (s *memoryStore) remove(queue string, e *entry) {
	s.queues[queue] = slices.DeleteFunc(s.queues[queue], func(other *entry) bool { return other == e })
}

// clone copies a message with its payload, which Copy shares.
func clone(msg *message.Message) *message.Message {
	c := msg.Copy()
	c.Payload = slices.Clone(msg.Payload)
	return c
}
