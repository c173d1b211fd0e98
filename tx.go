package postbox

import (
	"context"
	"database/sql"
	"database/sql/driver"

	wmsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"

	"github.com/postbox-go/watermill-postbox/internal/txscope"
)

// Executor executes statements in a transaction that is open. A *sql.Tx is one, and so are the transactions of sqlx, bun and ent, and the connection of a gorm.DB in a
// transaction (tx.Statement.ConnPool). For one with another method, such as pgx.Tx, see [ExecFunc]. It is used by one goroutine at a time, as a transaction is.
type Executor interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// ExecFunc returns an [Executor] that calls a method of a transaction of another library, and ignores its result: with pgx, postbox.ExecFunc(tx.Exec). The
// statements are written for database/sql, with the placeholders of the database; an argument may be a driver.Valuer.
//
// It must be a method of a transaction, never of a pool, whose every statement commits by itself: Postbox cannot tell one from the other. Call ExecFunc once for a
// transaction: messages of one call of Publish must carry the same executor.
func ExecFunc[Result any](exec func(ctx context.Context, query string, args ...any) (Result, error)) Executor {
	if exec == nil {
		return nil
	}
	return &execFunc{func(ctx context.Context, query string, args ...any) error {
		_, err := exec(ctx, query, args...)
		return err
	}}
}

// execFunc is the executor that ExecFunc returns.
type execFunc struct {
	exec func(ctx context.Context, query string, args ...any) error
}

// ExecContext calls the function.
func (f *execFunc) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return driver.ResultNoRows, f.exec(ctx, query, args...)
}

// ContextWithTx returns a context that carries tx. A Publisher writes its messages through it, and an
// inbox joins it in a savepoint instead of opening a transaction of its own.
//
// The caller ends the transaction. Wake-ups are then left to polling, since Postbox does not hear of
// the commit; forwarder.InTx does both.
//
// The transaction is a *sql.Tx, or a struct that embeds one, as those of sqlx and bun do. Messages can also be published in one of another library, in
// whatever way it executes a statement (see [Executor]); an inbox and forwarder.InTx cannot work in that, and return [ErrNoTransaction].
// The connection of a gorm.DB is a *sql.Tx unless gorm prepares statements.
//
// With nil, of whatever type, the context carries no transaction, even if ctx does: a Publisher returns [ErrNoTransaction], and an inbox or
// forwarder.InTx opens one of its own.
func ContextWithTx(ctx context.Context, tx Executor) context.Context {
	carried := txscope.Of(tx)
	if scope := txscope.From(ctx); scope != nil && carried.Other() == nil && scope.Other() == nil && scope.Tx == carried.Tx {
		return ctx // with what is known of the transaction
	}
	return carried.Context(ctx)
}

// ContextWithHooks returns a context that carries tx and collects what [AfterCommit] registers. The
// returned function runs it; call it once, after a successful commit. Give it the context that tx began with: when
// that ends, tx does, and the driver need not watch it for each statement once more.
func ContextWithHooks(ctx context.Context, tx *sql.Tx) (hooked context.Context, committed func()) {
	scope := txscope.Hooked(ctx, tx)
	return scope.Context(ctx), scope.Committed
}

// TxFromContext returns the transaction of database/sql that the context carries: one put there by [ContextWithTx], by
// forwarder.InTx, by an inbox, or by the subscriber of watermill-sql v3; that of v4 with
// middleware.SubscriberTx. A transaction of Postbox is not carried any more when the function of forwarder.InTx, or the handler of the inbox, that got the context
// has returned: a hook of [AfterCommit] and a goroutine that the function left behind are outside it. Nor is one of [ContextWithHooks] whose function was called.
func TxFromContext(ctx context.Context) (*sql.Tx, bool) {
	if scope := txscope.From(ctx); scope != nil {
		tx, err := scope.Live()
		return tx, err == nil && tx != nil
	}
	return wmsql.TxFromContext(ctx)
}

// AfterCommit runs hook after the context's transaction has committed, and says whether it will: it does
// not where no owner of the transaction collects hooks. A transaction is used by one goroutine at a time, and so is this.
func AfterCommit(ctx context.Context, hook func()) bool {
	return txscope.From(ctx).AfterCommit(hook)
}
