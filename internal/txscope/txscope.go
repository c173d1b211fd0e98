// Package txscope is what a context carries of a transaction: the transaction, the hooks that wait for its commit, how long it lasts,
// and whether a handler has failed in it. Users reach it by functions of the root package.
package txscope

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"sync"
	"sync/atomic"
)

type key struct{}

// Scope is that of one transaction, or of one savepoint of it. Its function works in it until [Scope.Return]. A goroutine that the function has left behind may
// still have the context afterwards, so the scope then lets nothing begin, and says whether something is still at work.
type Scope struct {
	Tx *sql.Tx

	other   Executor // a transaction of another library, where Tx is nil, see other.go
	outer   *Scope   // that of the transaction or savepoint around a savepoint; nil for a transaction
	state   atomic.Int32
	hooked  bool
	until   <-chan struct{} // of the context that the transaction began with, where there are hooks
	failed  atomic.Pointer[error]
	held    claim
	options *sql.TxOptions // with which the transaction began, nil if that is not known

	mu       sync.Mutex // guards what follows, and changes of state
	hooks    []func()
	first    [1]func() // most transactions have one hook, which needs no allocation
	inner    bool      // a function works in a savepoint of this scope
	calls    int       // calls under way that write in this scope without a savepoint
	outlived bool      // there were such calls, or such a function, when the function of this scope returned
}

// The states of a scope.
const (
	open      int32 = iota
	returned        // its function has returned
	committed       // the transaction is committed, as far as its owner has said so
)

var (
	// ErrReturned is returned for work in a scope whose function has returned.
	ErrReturned = errors.New("the function of InTx, or the handler of an inbox, that this context belongs to has returned: wait for its goroutines before it returns, " +
		"or let them have a transaction of their own, with a context from postbox.ContextWithTx(ctx, nil)")
	// ErrBeside is returned to the second of two functions that want to work in savepoints of one scope at the same time.
	ErrBeside = errors.New("another function of InTx works in the transaction of the context, and two at a time would undo each other's writes: call one after the " +
		"other; within a function, use the context that it gets; or have a transaction of its own beside this one, with a context from postbox.ContextWithTx(ctx, nil)")
	// ErrOutlived is returned for a function that has returned too early.
	ErrOutlived = errors.New("the function has returned while InTx, Publish or an inbox still worked with its context in another goroutine, so the whole transaction is " +
		"rolled back: wait for that goroutine before you return")
)

// claim is the key of the message that an inbox handles in a scope, and the claims among which it is one.
type claim struct {
	among string
	key   []byte
}

// New returns the scope of a transaction that its user ends.
func New(tx *sql.Tx) *Scope { return &Scope{Tx: tx} }

// Hooked returns the scope of a transaction that began with ctx, and whose owner calls Committed.
func Hooked(ctx context.Context, tx *sql.Tx) *Scope {
	s := &Scope{Tx: tx, hooked: true, until: ctx.Done()}
	s.hooks = s.first[:0]
	return s
}

// With notes the options with which the transaction began, where nil means the default. It returns the scope.
func (s *Scope) With(options *sql.TxOptions) *Scope {
	s.options = options
	return s
}

// Live returns the transaction. It is nil if there is none, or if it is known to be committed: a hook may still have the context of the
// transaction, but it runs after the commit. The error is [ErrReturned] if the function of the scope, or one around it, has returned, and [ErrOther] for a
// transaction of another library.
func (s *Scope) Live() (*sql.Tx, error) {
	var err error
	for at := s; at != nil; at = at.outer {
		switch at.state.Load() {
		case committed:
			return nil, nil
		case returned:
			err = ErrReturned
		}
	}
	switch {
	case s == nil || err != nil:
		return nil, err
	case s.other != nil:
		return nil, ErrOther
	}
	return s.Tx, nil
}

// Begin notes that a call begins to write in the scope, until End. It returns [ErrReturned] if it must not.
func (s *Scope) Begin() error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.Live(); err != nil {
		return err
	}
	s.calls++
	return nil
}

// End ends what Begin began.
func (s *Scope) End() {
	if s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.calls--
	}
}

// enter notes that a function begins to work in a savepoint of the scope. It returns [ErrBeside] while another function does: ROLLBACK TO SAVEPOINT
// undoes all later writes of the transaction, and so would undo those of the other function.
func (s *Scope) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.Live(); err != nil {
		return err
	}
	if s.inner {
		return ErrBeside
	}
	s.inner = true
	return nil
}

// Leave ends what [Within] began, when the savepoint is released or rolled back. If the function of the scope was outlived, the functions around it were too: what is
// still at work may have written to the transaction behind the end of the savepoint.
func (s *Scope) Leave() {
	if !s.outlived {
		s.outer.mu.Lock()
		defer s.outer.mu.Unlock()
		s.outer.inner = false
	}
}

// Return notes that the function of the scope has returned: nothing can begin in the scope from then on. If something is still at work in it, Return rolls back the whole
// transaction and returns [ErrOutlived]. Going back to a savepoint is not enough, since what is at work could write behind it; after the end of
// the transaction, database/sql lets nothing through. The error is [ErrReturned] if a function around it has returned before. It can be called twice.
func (s *Scope) Return() error {
	s.mu.Lock()
	s.state.CompareAndSwap(open, returned)
	s.outlived = s.outlived || s.inner || s.calls > 0
	s.mu.Unlock()
	if s.outlived {
		_ = s.Tx.Rollback() // that it has ended is as good
		return ErrOutlived
	}
	_, err := s.outer.Live()
	return err
}

// Offers says that the transaction is what a caller asks for who wants one with these options: that it began with them, if they ask for anything.
func (s *Scope) Offers(options *sql.TxOptions) bool {
	if options == nil || *options == (sql.TxOptions{}) {
		return true
	}
	return s != nil && s.options != nil && *s.options == *options
}

// Within returns the scope of a savepoint of tx, which ctx carries. Its owner calls Committed when it has released the savepoint, and in any case Leave. A failure
// within it is its own, since going back to the savepoint undoes it. The error is [ErrBeside] or [ErrReturned] where no savepoint must be set.
func Within(ctx context.Context, tx *sql.Tx) (*Scope, error) {
	outer := From(ctx)
	if outer == nil || outer.Tx != tx {
		outer = New(tx) // of a subscriber that puts its transaction into the context by itself
	}
	if err := outer.enter(); err != nil {
		return nil, err
	}
	return &Scope{Tx: tx, outer: outer, hooked: outer.hooked, until: outer.until, options: outer.options}, nil
}

// Context returns a context that carries the scope.
func (s *Scope) Context(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, s) }

// From returns the scope that ctx carries, or nil.
func From(ctx context.Context) *Scope {
	scope, _ := ctx.Value(key{}).(*Scope)
	return scope
}

// Fail notes that a handler has returned an error in the scope, which must not be committed from then on, whatever the
// functions around the handler make of the error. The first error stays. A nil error, and a nil scope, change nothing.
func (s *Scope) Fail(err error) {
	if s != nil && err != nil {
		s.failed.CompareAndSwap(nil, &err)
	}
}

// Failure returns the error that Fail has noted, or nil.
func (s *Scope) Failure() error {
	if s == nil {
		return nil
	}
	if err := s.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// Hold notes that an inbox handles the message of this key in the scope.
func (s *Scope) Hold(among string, key []byte) { s.held = claim{among, key} }

// Holds says whether an inbox handles the message of this key in the scope, or in one around it.
func (s *Scope) Holds(among string, key []byte) bool {
	for ; s != nil; s = s.outer {
		if s.held.key != nil && s.held.among == among && bytes.Equal(s.held.key, key) {
			return true
		}
	}
	return false
}

// AfterCommit keeps hook for Committed, and says whether that will be called.
func (s *Scope) AfterCommit(hook func()) bool {
	if s == nil || !s.hooked {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.Load() == committed {
		return false
	}
	s.hooks = append(s.hooks, hook)
	return true
}

// Committed runs the hooks. Those of a savepoint, which has been released, now wait for the end of what is around it. If the savepoint is rolled back, they never run.
func (s *Scope) Committed() {
	s.mu.Lock()
	if s.outer == nil {
		s.state.Store(committed) // before the hooks, which may want a transaction of their own
	}
	hooks := s.hooks
	s.hooks = nil
	s.mu.Unlock()
	for _, hook := range hooks {
		if s.outer != nil {
			s.outer.AfterCommit(hook)
		} else {
			hook()
		}
	}
}

// EndsWith tells whether ctx ends exactly when the context does that tx began with, as far as ctx itself says.
func EndsWith(ctx context.Context, tx *sql.Tx) bool {
	scope := From(ctx)
	return scope != nil && scope.Tx == tx && scope.hooked && scope.until == ctx.Done()
}
