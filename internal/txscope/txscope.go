// Package txscope is what a context carries of a transaction: the transaction, what waits for its commit, and how long it lasts.
// Users reach it by functions of the root package.
package txscope

import (
	"context"
	"database/sql"
)

type key struct{}

// Scope is that of one transaction. Like the transaction, it is used by one goroutine at a time.
type Scope struct {
	Tx *sql.Tx

	hooked bool
	hooks  []func()
	first  [1]func()       // most transactions have one hook, which needs no allocation
	until  <-chan struct{} // of the context that the transaction began with, where there are hooks
}

// New returns the scope of a transaction that somebody else ends.
func New(tx *sql.Tx) *Scope { return &Scope{Tx: tx} }

// Hooked returns the scope of a transaction that began with ctx, and whose owner calls Committed.
func Hooked(ctx context.Context, tx *sql.Tx) *Scope {
	s := &Scope{Tx: tx, hooked: true, until: ctx.Done()}
	s.hooks = s.first[:0]
	return s
}

// Context returns a context that carries the scope.
func (s *Scope) Context(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, s) }

// From returns the scope that ctx carries, or nil.
func From(ctx context.Context) *Scope {
	scope, _ := ctx.Value(key{}).(*Scope)
	return scope
}

// AfterCommit keeps hook for Committed, and says whether somebody will call that.
func (s *Scope) AfterCommit(hook func()) bool {
	if s == nil || !s.hooked {
		return false
	}
	s.hooks = append(s.hooks, hook)
	return true
}

// Committed runs the hooks.
func (s *Scope) Committed() {
	for _, hook := range s.hooks {
		hook()
	}
}

// EndsWith tells whether ctx ends exactly when the context does that tx began with, as far as ctx itself says.
func EndsWith(ctx context.Context, tx *sql.Tx) bool {
	scope := From(ctx)
	return scope != nil && scope.Tx == tx && scope.hooked && scope.until == ctx.Done()
}
