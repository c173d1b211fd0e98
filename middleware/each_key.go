package middleware

import (
	"context"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// LimitEachKey returns a middleware that starts at most perSecond messages of each ordering key in
// a second, evenly: a message that comes too early waits for its time. Messages without
// [postbox.MetadataOrderingKey] do not wait. Use it for the handler of a queue, and before all that
// opens a transaction: for one key all messages are handled in one process, so all processes
// together keep the limit. When the key moves to another process, as after a crash, one message may
// start early.
//
// A message waits in its handler, which counts for the Concurrency of the queue: raise that if many
// keys wait, or give a slow queue [postbox.Limits] instead. A queue that is Transactional keeps its
// transaction open meanwhile. If the deadline of the message's context passes, that counts as an
// attempt, and its turn is lost: add Watermill's Timeout after this, so that it is inside.
//
// It is safe for concurrent use. It forgets keys that may start at once. LimitEachKey panics if
// perSecond is not between 0.00001 and 1,000,000, as Watermill's router does when a handler cannot
// be added.
func LimitEachKey(perSecond float64) message.HandlerMiddleware {
	if err := spool.ValidRate(perSecond); err != nil || perSecond == 0 {
		panic("LimitEachKey: perSecond is not a rate: use a number from 0.00001 to 1,000,000")
	}
	l := &keyLimit{step: time.Duration(float64(time.Second) / perSecond), next: map[string]time.Time{}, prune: leastKeys}
	return func(h message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			if key := msg.Metadata.Get(postbox.MetadataOrderingKey); key != "" {
				if err := l.wait(msg.Context(), key); err != nil {
					return nil, err
				}
			}
			return h(msg)
		}
	}
}

// leastKeys is the number of keys from which on it pays to forget.
const leastKeys = 1000

// keyLimit knows when the next message of each key may start.
type keyLimit struct {
	step  time.Duration
	mu    sync.Mutex
	next  map[string]time.Time
	prune int // the number of keys at which those are forgotten that may start
}

// wait waits for the turn of a message.
func (l *keyLimit) wait(ctx context.Context, key string) error {
	timer := time.NewTimer(time.Until(l.turn(key, time.Now())))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// turn returns when a message of the key starts.
func (l *keyLimit) turn(key string, now time.Time) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.next) >= l.prune {
		for of, at := range l.next {
			if !at.After(now) {
				delete(l.next, of)
			}
		}
		l.prune = max(2*len(l.next), leastKeys)
	}
	at := l.next[key]
	if at.Before(now) {
		at = now
	}
	l.next[key] = at.Add(l.step)
	return at
}
