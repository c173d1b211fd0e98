package middleware

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/txscope"
)

const (
	// swallowedEvery is the time between two log lines of an inbox about errors that something outside of it has swallowed.
	swallowedEvery = time.Minute
	// swallowedGrace is how long after the end of its context the ack of a message is awaited. Watermill's Timeout ends the context a moment before the ack;
	// a copy of a message, on which a middleware called the inbox, is never acked.
	swallowedGrace = time.Second
)

// swallowed notices messages that failed in an inbox and are acked all the same, since a middleware outside of the inbox took the error, as Watermill's
// IgnoreErrors and PoisonQueue do. Such a message has no effect and no dead letter.
type swallowed struct {
	logger watermill.LoggerAdapter

	count   atomic.Int64 // of failed, so that a message that succeeds costs no lock
	mu      sync.Mutex
	failed  map[*message.Message]*failure
	silence time.Time // until when nothing is logged
}

// failure is the last failure of a message that is neither acked nor nacked yet.
type failure struct {
	err   error
	about watermill.LogFields // made before the message is returned: if it was acked before its handler ran, another handler may be using it later
}

// ended is called when a delivery has ended. It watches a message that failed until the router acks or nacks it, which outside of a router may never happen. Within
// another inbox, or if the transaction of the message has failed, an ack is not the end of the message.
func (s *swallowed) ended(ctx context.Context, key inboxstore.Key, msg *message.Message, err error) {
	if err == nil {
		if s.count.Load() > 0 {
			s.take(msg, nil)
		}
		return
	}
	if message.HandlerNameFromCtx(ctx) == "" || insideOf(ctx) != nil || msg.Acked() == nil || msg.Nacked() == nil {
		return
	}
	if f := s.add(key, msg, err); f != nil {
		go s.watch(ctx, msg, f)
	}
}

// add records a failure. It returns the failure if the message is to be watched from now on.
func (s *swallowed) add(key inboxstore.Key, msg *message.Message, err error) *failure {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.failed[msg]; f != nil { // as under Watermill's Retry
		f.err = err
		return nil
	}
	f := &failure{err: err, about: fields(key, msg)}
	s.failed[msg] = f
	s.count.Add(1)
	return f
}

// take forgets the failure of a message, any or a given one, and says whether there was one.
func (s *swallowed) take(msg *message.Message, of *failure) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.failed[msg]
	if f == nil || of != nil && f != of {
		return false
	}
	delete(s.failed, msg)
	s.count.Add(-1)
	return true
}

// watch waits for the end of a message, and logs if that is an ack and the message has not succeeded meanwhile.
func (s *swallowed) watch(ctx context.Context, msg *message.Message, f *failure) {
	acked := awaitAck(ctx, msg)
	if !s.take(msg, f) || !acked || txscope.From(ctx).Failure() != nil || !s.mayLog() {
		return
	}
	s.logger.Error("A message was acked although it failed in the inbox: it has no effect and no dead letter, and is not delivered again. "+
		"A middleware outside of the inbox took the error, or the handler acked the message by itself. Remove Watermill's IgnoreErrors or PoisonQueue there: the inbox has dead letters. Leave acks to the router", f.err, f.about)
}

// awaitAck says whether the message is acked in the end.
func awaitAck(ctx context.Context, msg *message.Message) bool {
	select {
	case <-msg.Acked():
		return true
	case <-msg.Nacked():
		return false
	case <-ctx.Done():
	}
	grace := time.NewTimer(swallowedGrace)
	defer grace.Stop()
	select {
	case <-msg.Acked():
		return true
	case <-msg.Nacked():
	case <-grace.C:
	}
	return false
}

func (s *swallowed) mayLog() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if now.Before(s.silence) {
		return false
	}
	s.silence = now.Add(swallowedEvery)
	return true
}

// fields name a message in the log.
func fields(key inboxstore.Key, msg *message.Message) watermill.LogFields {
	return watermill.LogFields{"consumer": key.Consumer, "topic": key.Topic, "message_uuid": cmp.Or(key.MessageID, msg.UUID)}
}
