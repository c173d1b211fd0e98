package memstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
)

// DefaultCloseTimeout is the default of CloseTimeout in [Config].
const DefaultCloseTimeout = time.Second

// buryTimeout bounds how long [Store.Bury] waits for a handler of its message.
const buryTimeout = 30 * time.Second

// Config says how a store behaves. The zero value is fine.
type Config struct {
	// CloseTimeout is how long a handler may go on with a live context after that of its delivery has ended, and a
	// subscriber that closes waits for messages that are not acked. Defaults to 1 s, which is less than that of
	// inboxstore, since tests wait for it; negative means not at all.
	CloseTimeout time.Duration
}

// Store is an inbox's memory, in memory. It is safe for concurrent use.
type Store struct {
	closeTimeout time.Duration

	mu          sync.Mutex
	closed      bool
	ahead       time.Duration // of its clock before that of the machine
	claims      map[inboxstore.Key]*claim
	failures    map[inboxstore.Key][]error
	dead        []DeadLetter
	queues      map[string][]*entry // oldest first
	changed     chan struct{}       // closed, and replaced, when a message may have become due
	subscribers []*Subscriber
}

// claim is a key that is taken: for good once it is committed, and until then by a handler.
type claim struct {
	committed bool
	ended     chan struct{} // closed when the handler has ended
}

// handling is under which a context says that fn runs for a key of a store.
type handling struct {
	store *Store
	key   inboxstore.Key
}

// New returns an empty store.
func New(config Config) *Store {
	return &Store{
		closeTimeout: max(cmp.Or(config.CloseTimeout, DefaultCloseTimeout), 0),
		claims:       map[inboxstore.Key]*claim{}, failures: map[inboxstore.Key][]error{},
		queues: map[string][]*entry{}, changed: make(chan struct{}),
	}
}

// Once runs fn and claims the key, unless an earlier claim lasts. A claim under way is waited for. Errors of fn come
// back as [inboxstore.HandlerError], and the key is free again, but what fn has written stays.
//
// The context that fn gets carries no transaction of the store's. It stays alive for the close timeout after ctx has
// ended; the claim of an fn that takes longer does not last.
//
// Within fn, a call with the same key runs its own fn as a part of this one, and returns that one's error as it is.
func (s *Store) Once(ctx context.Context, key inboxstore.Key, fn func(ctx context.Context) error) (fresh bool, err error) {
	if ctx.Value(handling{s, key}) != nil {
		err := fn(ctx)
		return err == nil, err
	}
	return s.once(ctx, key, fn, func() {})
}

// once claims the key, runs fn, and if that succeeds commits: the claim, and what commit does while it holds the lock.
func (s *Store) once(ctx context.Context, key inboxstore.Key, fn func(ctx context.Context) error, commit func()) (fresh bool, err error) {
	mine, err := s.claim(ctx, key)
	if mine == nil {
		return false, err
	}
	defer func() { s.end(key, mine, fresh, commit) }() // also when fn panics
	live, end := outlive(ctx, s.closeTimeout)
	defer end()
	if err := fn(context.WithValue(live, handling{s, key}, true)); err != nil {
		return false, &inboxstore.HandlerError{Err: err}
	}
	if err := live.Err(); err != nil {
		return false, fmt.Errorf("memstore: the handler took longer than the close timeout: %w", err)
	}
	return true, nil
}

// claim takes a key, and waits while another delivery has it. It returns nil, and no error, where a claim lasts.
func (s *Store) claim(ctx context.Context, key inboxstore.Key) (*claim, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("memstore: claim message: %w", err)
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

// tryClaim returns a new claim, or that of a handler under way, or nil where a claim lasts.
func (s *Store) tryClaim(key inboxstore.Key) (found *claim, mine bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, false, fmt.Errorf("memstore: claim message: %w", postbox.ErrClosed)
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

// end keeps a claim or drops it, and lets others of the same key go on.
func (s *Store) end(key inboxstore.Key, mine *claim, committed bool, commit func()) {
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

// RecordFailure notes that the handler failed, and returns how often it has by now.
func (s *Store) RecordFailure(_ context.Context, key inboxstore.Key, cause error) (attempts int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, fmt.Errorf("memstore: record failure: %w", postbox.ErrClosed)
	}
	s.failures[key] = append(s.failures[key], cause)
	return len(s.failures[key]), nil
}

// Bury moves a message to the dead letters and claims it. It does nothing where the message has been claimed
// meanwhile, and waits for a handler of the message to end.
func (s *Store) Bury(ctx context.Context, key inboxstore.Key, msg *message.Message, attempts int, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), buryTimeout)
	defer cancel()
	letter := DeadLetter{Key: key, Message: clone(msg), Attempts: attempts, Err: cause}
	_, err := s.once(ctx, key, nothing, func() {
		letter.Failures = slices.Clone(s.failures[key])
		s.dead = append(s.dead, letter)
	})
	return err
}

// nothing is what runs where there is only something to commit.
func nothing(context.Context) error { return nil }

// Close ends all subscribers. Handlers under way are not touched, but those of messages from queues have the close
// timeout to end in. It can be called twice.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	subscribers := s.subscribers
	s.mu.Unlock()
	for _, subscriber := range subscribers {
		_ = subscriber.Close() // it returns none
	}
	return nil
}

// outlive returns a context that ends the given time after ctx has, and a function that ends it at once.
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
