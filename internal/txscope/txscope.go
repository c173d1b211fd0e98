// Package txscope is what a context carries of a transaction: the transaction, what waits for its commit, how long it lasts,
// and whether a handler has failed in it. Users reach it by functions of the root package.
package txscope

import (
	"bytes"
	"context"
	"database/sql"
	"sync/atomic"
)

type key struct{}

// Scope is that of one transaction, or of one savepoint of it. Like the transaction, it is used by one goroutine at a time.
type Scope struct {
	Tx *sql.Tx

	committed atomic.Bool // the transaction, as far as its owner has said so
	entered   atomic.Bool // a function works in a savepoint of this scope
	outer     *Scope      // which takes the hooks of a savepoint when that is released
	hooked    bool
	hooks     []func()
	first     [1]func()       // most transactions have one hook, which needs no allocation
	until     <-chan struct{} // of the context that the transaction began with, where there are hooks
	failed    atomic.Pointer[error]
	held      claim

	options *sql.TxOptions // with which the transaction began, nil if that is not known
}

// claim is the key of the message that an inbox handles in a scope, and the claims among which it is one.
type claim struct {
	among string
	key   []byte
}

// New returns the scope of a transaction that somebody else ends.
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
// transaction, but it runs after the commit.
func (s *Scope) Live() *sql.Tx {
	for outer := s; outer != nil; outer = outer.outer {
		if outer.committed.Load() {
			return nil
		}
	}
	return s.Tx
}

// Enter notes that a function begins to work in a savepoint of the scope, until Leave. It returns false while another function does: ROLLBACK TO SAVEPOINT
// undoes all later writes of the transaction, and so would undo those of the other function.
func (s *Scope) Enter() bool { return s == nil || s.entered.CompareAndSwap(false, true) }

// Leave ends what Enter began.
func (s *Scope) Leave() {
	if s != nil {
		s.entered.Store(false)
	}
}

// Offers says that the transaction is what somebody asks for who wants one with these options: that it began with them, if they ask for anything.
func (s *Scope) Offers(options *sql.TxOptions) bool {
	if options == nil || *options == (sql.TxOptions{}) {
		return true
	}
	return s != nil && s.options != nil && *s.options == *options
}

// Within returns the scope of a savepoint of tx, which ctx carries, and whose owner calls Committed when it releases the savepoint. A failure within it
// is its own, since going back to the savepoint undoes it.
func Within(ctx context.Context, tx *sql.Tx) *Scope {
	s := New(tx)
	if outer := From(ctx); outer != nil && outer.Tx == tx {
		s.outer, s.hooked, s.until, s.options = outer, outer.hooked, outer.until, outer.options
	}
	return s
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

// AfterCommit keeps hook for Committed, and says whether somebody will call that.
func (s *Scope) AfterCommit(hook func()) bool {
	if s == nil || !s.hooked {
		return false
	}
	s.hooks = append(s.hooks, hook)
	return true
}

// Committed runs the hooks. Those of a savepoint, which has been released, now wait for the end of what is around it. If the savepoint is rolled back, they never run.
func (s *Scope) Committed() {
	if s.outer == nil {
		s.committed.Store(true) // before the hooks, which may want a transaction of their own
	}
	for _, hook := range s.hooks {
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
