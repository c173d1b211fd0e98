// Package txscope holds the state of a transaction in a context: the transaction, the hooks that
// wait for its commit, its lifetime, and whether a handler has failed in it. Users reach it through
// functions of the root package.
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

// Scope is the scope of one transaction, or of one savepoint in it. Its function works in it until
// [Scope.Return]. A goroutine that the function has left behind may still have the context
// afterwards. So the scope then lets nothing begin, and reports whether anything is still running.
type Scope struct {
	Tx *sql.Tx

	other   Executor // a transaction of another library; then Tx is nil, see other.go
	outer   *Scope   // the scope around a savepoint; nil for a transaction
	state   atomic.Int32
	hooked  bool
	until   <-chan struct{} // ends with the context with which the transaction began; set if there are hooks
	failed  atomic.Pointer[error]
	held    claim
	options *sql.TxOptions // with which the transaction began; nil if unknown

	mu       sync.Mutex // guards the fields below, and changes of state
	hooks    []func()
	first    [1]func() // most transactions have one hook, which needs no allocation
	inner    bool      // a function works in a savepoint of this scope
	calls    int       // running calls that write in this scope without a savepoint
	outlived bool      // such calls, or such a function, were running when the function of this scope returned
}

// The states of a scope.
const (
	open      int32 = iota
	returned        // its function has returned
	committed       // the transaction is committed, as its owner has reported
)

// ErrNone is postbox.ErrNoTransaction.
var ErrNone = errors.New("no transaction in the context: begin one with postbox.InTx, or give yours to postbox.ContextWithTx; " +
	"in a handler of a queue, set Transactional in the queue.Config; for a pgx.Tx, give the outbox and the store pgxbox.Database")

// NoTxError is an [ErrNone] that says why there is none.
type NoTxError string

// Error returns the text.
func (n NoTxError) Error() string { return string(n) }

// Is says that it is an [ErrNone].
func (NoTxError) Is(target error) bool { return target == ErrNone }

var (
	// ErrReturned is returned for work in a scope whose function has returned.
	ErrReturned = error(NoTxError("the function of InTx, or the handler of an inbox, that this context belongs to has returned: wait for its goroutines before it returns, " +
		"or let them begin a separate transaction, with a context from postbox.ContextWithTx(ctx, nil)"))
	// ErrBeside is returned to the second of two functions that try to work in savepoints of one
	// scope at the same time.
	ErrBeside = errors.New("another function of InTx is using the transaction of the context, and two at a time would undo each other's writes: call one after the " +
		"other; within a function, use the context that it receives; or begin a separate transaction, with a context from postbox.ContextWithTx(ctx, nil)")
	// ErrOutlived is returned for a function that has returned too early.
	ErrOutlived = errors.New("the function has returned while InTx, Publish or an inbox still worked with its context in another goroutine, so the whole transaction is " +
		"rolled back: wait for that goroutine before you return")
)

// claim is the key of the message that an inbox handles in a scope, with the set of claims to which
// it belongs.
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

// With stores the options with which the transaction began; nil means the default. It returns the
// scope.
func (s *Scope) With(options *sql.TxOptions) *Scope {
	s.options = options
	return s
}

// Live returns the transaction. It is nil if there is none, or if it is known to be committed: a
// hook may still have the context of the transaction, but it runs after the commit. The error is
// [ErrReturned] if the function of the scope, or a function around it, has returned. It is
// [ErrOther] for a transaction of another library.
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

// Over reports whether the transaction is known to be committed, so that the context carries none
// any more.
func (s *Scope) Over() bool {
	for ; s != nil; s = s.outer {
		if s.state.Load() == committed {
			return true
		}
	}
	return false
}

// Begin records that a call begins to write in the scope, until End. It returns [ErrReturned] if
// the call is not allowed.
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

// End ends a call that Begin has recorded.
func (s *Scope) End() {
	if s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.calls--
	}
}

// enter records that a function begins to work in a savepoint of the scope. It returns [ErrBeside]
// while another function does: ROLLBACK TO SAVEPOINT undoes all later writes of the transaction,
// including those of the other function.
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

// Leave ends the scope that [Within] began, after the savepoint is released or rolled back. If the
// function of the scope was outlived, so were the functions around it: a running goroutine may have
// written to the transaction after the end of the savepoint.
func (s *Scope) Leave() {
	if !s.outlived {
		s.outer.mu.Lock()
		defer s.outer.mu.Unlock()
		s.outer.inner = false
	}
}

// Return records that the function of the scope has returned: nothing can begin in the scope from
// then on. If anything is still running in it, Return rolls back the whole transaction and returns
// [ErrOutlived]. Going back to a savepoint is not enough, since a running goroutine could write
// after it. After the end of the transaction, database/sql allows no writes. The error is
// [ErrReturned] if a function around it has returned before. It can be called twice.
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

// Offers reports whether the transaction satisfies a caller that needs one with these options: it
// began with them, or they are the default.
func (s *Scope) Offers(options *sql.TxOptions) bool {
	if options == nil || *options == (sql.TxOptions{}) {
		return true
	}
	return s != nil && s.options != nil && *s.options == *options
}

// Within returns the scope of a savepoint of the transaction that ctx carries. Its owner calls
// Committed after it has released the savepoint, and always calls Leave. A failure within the scope
// does not affect the scope around it, since going back to the savepoint undoes it. The error is
// [ErrBeside] or [ErrReturned] if no savepoint may be set.
func Within(ctx context.Context) (*Scope, error) {
	outer := From(ctx)
	if err := outer.enter(); err != nil {
		return nil, err
	}
	return &Scope{Tx: outer.Tx, outer: outer, hooked: outer.hooked, until: outer.until, options: outer.options}, nil
}

// Context returns a context that carries the scope.
func (s *Scope) Context(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, s) }

// From returns the scope that ctx carries, or nil.
func From(ctx context.Context) *Scope {
	scope, _ := ctx.Value(key{}).(*Scope)
	return scope
}

// Fail records that a handler has returned an error in the scope. From then on the scope must not
// be committed, whatever the functions around the handler do with the error. The first error stays.
// A nil error, and a nil scope, change nothing.
func (s *Scope) Fail(err error) {
	if s != nil && err != nil {
		s.failed.CompareAndSwap(nil, &err)
	}
}

// Failure returns the error that Fail has recorded, or nil.
func (s *Scope) Failure() error {
	if s == nil {
		return nil
	}
	if err := s.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// Hold records that an inbox handles the message with this key in the scope.
func (s *Scope) Hold(among string, key []byte) { s.held = claim{among, key} }

// Holds reports whether an inbox handles the message with this key in the scope, or in a scope
// around it.
func (s *Scope) Holds(among string, key []byte) bool {
	for ; s != nil; s = s.outer {
		if s.held.key != nil && s.held.among == among && bytes.Equal(s.held.key, key) {
			return true
		}
	}
	return false
}

// AfterCommit stores a hook for Committed, and reports whether Committed will be called.
func (s *Scope) AfterCommit(hook func()) bool {
	if s == nil || !s.hooked || hook == nil {
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

// Committed runs the hooks. Hooks of a released savepoint now wait for the end of the scope around
// it. If that is rolled back, they never run.
func (s *Scope) Committed() {
	s.mu.Lock()
	if s.outer == nil {
		s.state.Store(committed) // before the hooks, which may need a transaction of their own
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

// EndsWith reports whether ctx ends exactly when the context ends with which tx began, as far as
// ctx itself shows.
func EndsWith(ctx context.Context, tx *sql.Tx) bool {
	scope := From(ctx)
	return scope != nil && scope.Tx == tx && scope.hooked && scope.until == ctx.Done()
}
