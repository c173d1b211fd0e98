package postbox

import (
	"context"
	"database/sql"

	wmsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
)

type txKey struct{}

// txScope is what a context carries: the transaction, and what waits for its commit.
type txScope struct {
	tx          *sql.Tx
	afterCommit *[]func()
}

// ContextWithTx returns a context that carries tx. A Publisher writes its messages through it, and an
// inbox joins it in a savepoint instead of opening a transaction of its own.
//
// Whoever calls it ends the transaction. Wake-ups are then left to polling, since nobody tells Postbox of
// the commit; forwarder.InTx does both.
func ContextWithTx(ctx context.Context, tx *sql.Tx) context.Context {
	return context.WithValue(ctx, txKey{}, txScope{tx: tx})
}

// ContextWithHooks returns a context that carries tx and collects what [AfterCommit] registers. The
// returned function runs it; call it once, after a successful commit.
func ContextWithHooks(ctx context.Context, tx *sql.Tx) (hooked context.Context, committed func()) {
	var hooks []func()
	hooked = context.WithValue(ctx, txKey{}, txScope{tx: tx, afterCommit: &hooks})
	return hooked, func() {
		for _, hook := range hooks {
			hook()
		}
	}
}

// TxFromContext returns the transaction that the context carries: one put there by [ContextWithTx], by
// forwarder.InTx, by an inbox, or by the subscriber of watermill-sql v3.
func TxFromContext(ctx context.Context) (*sql.Tx, bool) {
	if scope, ok := ctx.Value(txKey{}).(txScope); ok {
		return scope.tx, true
	}
	return wmsql.TxFromContext(ctx)
}

// AfterCommit runs hook after the context's transaction has committed, and says whether it will: it does
// not where nobody collects hooks. A transaction is used by one goroutine at a time, and so is this.
func AfterCommit(ctx context.Context, hook func()) bool {
	scope, ok := ctx.Value(txKey{}).(txScope)
	if !ok || scope.afterCommit == nil {
		return false
	}
	*scope.afterCommit = append(*scope.afterCommit, hook)
	return true
}
