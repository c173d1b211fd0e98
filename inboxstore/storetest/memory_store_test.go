package storetest_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/inboxstore/storetest"
)

// buryTimeout bounds how long Bury waits for a running handler of its message.
const buryTimeout = 30 * time.Second

// memoryStore shows that a store which is not of this module can keep the contract. It is kept in
// main memory, and has no transaction: what a handler wrote before it failed remains.
type memoryStore struct {
	closeTimeout time.Duration

	mu          sync.Mutex
	closed      bool
	claims      map[inboxstore.Key]*claim
	failures    map[inboxstore.Key][]error
	dead        []storetest.DeadLetter
	queues      map[string][]*entry // oldest first
	changed     chan struct{}       // closed, and replaced, when a message may have become due
	subscribers []*memorySubscriber
}

// claim is a key that is taken: by a handler until it is committed, and for good afterwards.
type claim struct {
	committed bool
	ended     chan struct{} // closed when the handler has ended
}

// handling is the context key that marks a running fn for a key of a store.
type handling struct {
	store *memoryStore
	key   inboxstore.Key
}

func newMemoryStore() *memoryStore {
	return &memoryStore{
		closeTimeout: storetest.CloseTimeout,
		claims:       map[inboxstore.Key]*claim{}, failures: map[inboxstore.Key][]error{},
		queues: map[string][]*entry{}, changed: make(chan struct{}),
	}
}

// Once runs fn and claims the key, unless the key has a committed claim. If another call holds the
// claim, Once waits for it to end. It returns errors of fn as [inboxstore.HandlerError]; then the
// key is free again, but the writes of fn remain.
//
// The context that fn gets carries no transaction of the store. It stays alive for the close
// timeout after ctx has ended. If fn takes longer, its claim is dropped.
//
// Within fn, a call with the same key runs its own fn as a part of the outer call, and returns its
// error unchanged.
func (s *memoryStore) Once(ctx context.Context, key inboxstore.Key, fn func(ctx context.Context) error) (fresh bool, err error) {
	if fn == nil {
		return false, errors.New("memory: the function is nil")
	}
	if ctx.Value(handling{s, key}) != nil {
		err := fn(ctx)
		return err == nil, err
	}
	return s.once(ctx, key, fn, func() {})
}

var errNoMessageID = postbox.Permanent(errors.New("memory: the key has no MessageID"))

// once claims the key and runs fn. If fn succeeds, once commits the claim and calls commit while it
// holds the lock.
func (s *memoryStore) once(ctx context.Context, key inboxstore.Key, fn func(ctx context.Context) error, commit func()) (fresh bool, err error) {
	if key.MessageID == "" {
		return false, errNoMessageID
	}
	mine, err := s.claim(ctx, key)
	if mine == nil {
		return false, err
	}
	defer func() { s.end(key, mine, fresh, commit) }() // also if fn panics
	live, end := outlive(ctx, s.closeTimeout)
	defer end()
	if err := fn(context.WithValue(live, handling{s, key}, true)); err != nil {
		return false, &inboxstore.HandlerError{Err: err}
	}
	if err := live.Err(); err != nil {
		return false, fmt.Errorf("memory: the handler took longer than the close timeout: %w", err)
	}
	return true, nil
}

// claim takes a key, and waits while another delivery holds it. It returns nil and no error if the
// key has a committed claim.
func (s *memoryStore) claim(ctx context.Context, key inboxstore.Key) (*claim, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("memory: claim message: %w", err)
		}
		found, mine, err := s.tryClaim(key)
		if mine || found == nil {
			return found, err
		}
		select {
		case <-found.ended:
		case <-ctx.Done():
		}
	}
}

// tryClaim returns a new claim, or the claim of a running handler, or nil if the key has a
// committed claim.
func (s *memoryStore) tryClaim(key inboxstore.Key) (found *claim, mine bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, false, fmt.Errorf("memory: claim message: %w", postbox.ErrClosed)
	}
	found = s.claims[key]
	switch {
	case found == nil:
		found = &claim{ended: make(chan struct{})}
		s.claims[key] = found
		return found, true, nil
	case found.committed:
		return nil, false, nil
	default:
		return found, false, nil
	}
}

// end keeps or drops a claim, and wakes other calls with the same key.
func (s *memoryStore) end(key inboxstore.Key, mine *claim, committed bool, commit func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if committed {
		mine.committed = true
		commit()
	} else {
		delete(s.claims, key)
	}
	close(mine.ended)
}

// RecordFailure records that the handler failed, and returns the number of failures so far.
func (s *memoryStore) RecordFailure(_ context.Context, key inboxstore.Key, cause error) (attempts int, err error) {
	if key.MessageID == "" {
		return 0, errNoMessageID
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, fmt.Errorf("memory: record failure: %w", postbox.ErrClosed)
	}
	s.failures[key] = append(s.failures[key], cause)
	return len(s.failures[key]), nil
}

// Bury moves a message to the dead letters and claims it. It waits for a running handler of the
// message to end. It does nothing if the message has been claimed meanwhile.
func (s *memoryStore) Bury(ctx context.Context, key inboxstore.Key, msg *message.Message, attempts int, cause error) error {
	if msg == nil {
		return fmt.Errorf("memory: bury message: %w", errNilMessage)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), buryTimeout)
	defer cancel()
	letter := clone(msg)
	_, err := s.once(ctx, key, nothing, func() { s.bury("", key, letter, attempts, cause, s.failures[key]) })
	return err
}

var errNilMessage = postbox.Permanent(errors.New("the message is nil"))

// nothing is the fn of a call that has only something to commit.
func nothing(context.Context) error { return nil }

// Close ends all subscribers. It does not affect running handlers, but handlers of messages from
// queues have the close timeout to end. It can be called twice.
func (s *memoryStore) Close() error {
	s.mu.Lock()
	s.closed = true
	subscribers := s.subscribers
	s.mu.Unlock()
	for _, subscriber := range subscribers {
		_ = subscriber.Close() // it returns no errors
	}
	return nil
}

// outlive returns a context that ends the given time after ctx has ended, and a function that ends
// it immediately.
func outlive(ctx context.Context, by time.Duration) (live context.Context, end func()) {
	live, cancel := context.WithCancel(context.WithoutCancel(ctx))
	timer := make(chan *time.Timer, 1)
	stop := context.AfterFunc(ctx, func() { timer <- time.AfterFunc(by, cancel) })
	return live, func() {
		if !stop() {
			(<-timer).Stop()
		}
		cancel()
	}
}
