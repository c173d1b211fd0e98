package postbox

import (
	"context"
	"database/sql"
	"database/sql/driver"

	"github.com/postbox-go/watermill-postbox/internal/txscope"
)

// Executor executes statements in an open transaction. A *sql.Tx is one, and so are the
// transactions of sqlx, bun and ent, and the connection of a gorm.DB in a transaction
// (tx.Statement.ConnPool). For a transaction with another method, such as pgx.Tx, see [ExecFunc].
// Like a transaction, it is used by one goroutine at a time.
type Executor interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// ExecFunc returns an [Executor] that calls a method of another library's transaction. For pgx,
// write postbox.ExecFunc(tx.Exec). Of the result it needs at most the number of changed rows, if
// the result has a method RowsAffected (see forwarder.WhenSkipped). It must be that of the
// statement: whether a message of a unique key waits is told by it. The statements are written for
// database/sql, with the placeholders of the database; an argument may be a driver.Valuer.
//
// The method must be that of a transaction, never of a pool: a pool commits each statement by
// itself, and Postbox cannot see the difference. Call ExecFunc once for a transaction, since the
// messages of one call of Publish must carry the same executor.
func ExecFunc[Result any](exec func(ctx context.Context, query string, args ...any) (Result, error)) Executor {
	if exec == nil {
		return nil
	}
	return &execFunc{func(ctx context.Context, query string, args ...any) (sql.Result, error) {
		result, err := exec(ctx, query, args...)
		if err != nil {
			return nil, err
		}
		return resultOf(result), nil
	}}
}

// execFunc is the executor that ExecFunc returns.
type execFunc struct {
	exec func(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// ExecContext calls the function.
func (f *execFunc) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return f.exec(ctx, query, args...)
}

// resultOf returns the number of changed rows that a library reports in its own type, as pgx does.
func resultOf(result any) sql.Result {
	switch r := result.(type) {
	case sql.Result:
		return r
	case interface{ RowsAffected() int64 }:
		return driver.RowsAffected(r.RowsAffected())
	default:
		return driver.ResultNoRows
	}
}

// ContextWithTx returns a context that carries tx. A Publisher writes its messages through tx, and
// an inbox joins it in a savepoint instead of opening a transaction of its own.
//
// The caller ends the transaction. Postbox is not told about that commit, so forwarders find the
// messages by polling, and [AfterCommit] takes no hooks. Call Announce of the forwarder.Publisher
// after the commit to wake them at once. postbox.InTx commits, wakes them, and runs the hooks.
//
// An inbox records failures in this transaction too: commit it after its error as well, or no
// attempt counts, but not after a deadlock of MySQL or MariaDB (1213), which undoes all of it.
//
// The transaction is a *sql.Tx, or a struct that embeds one, as those of sqlx, bun and gorm do.
// Messages can also be published in a transaction of another library, in any way in which that
// executes a statement (see [Executor]). An inbox and postbox.InTx cannot work in such a
// transaction, and return [ErrNoTransaction].
//
// If tx is nil, of whatever type, the new context carries no transaction, even if ctx does: a
// Publisher returns [ErrNoTransaction], and an inbox or postbox.InTx opens a transaction of its
// own.
func ContextWithTx(ctx context.Context, tx Executor) context.Context {
	carried := txscope.Of(tx)
	if scope := txscope.From(ctx); scope != nil && carried.Other() == nil && scope.Other() == nil && scope.Tx == carried.Tx {
		return ctx // with what is known of the transaction
	}
	return carried.Context(ctx)
}

// TxFromContext returns the transaction of database/sql that the context carries. [ContextWithTx],
// postbox.InTx, or an inbox put it there. A queue does so only with Transactional in its config.
// Otherwise TxFromContext returns nil and false: look at the second result, and return
// [ErrNoTransaction], before you use the transaction. That in which a subscriber of watermill-sql
// consumes is not found: it may be committed in the middle of a handler.
//
// A transaction of Postbox is carried only until the function of postbox.InTx, or the handler of
// the inbox, that got the context has returned. So a hook of [AfterCommit], and a goroutine that
// the function left behind, do not find it.
func TxFromContext(ctx context.Context) (*sql.Tx, bool) {
	tx, err := txscope.From(ctx).Live()
	return tx, err == nil && tx != nil
}

// AfterCommit runs hook after the context's transaction has committed. It does so in a transaction
// that postbox.InTx, an inbox or a queue has begun. It returns false if it will not run hook: in a
// transaction of [ContextWithTx], whose owner knows when it has committed, without a transaction,
// and for a hook that is nil. Like a transaction, AfterCommit is used by one goroutine at a time.
//
// The messages are done when hook runs, so its panic undoes nothing, but later hooks do not run:
// InTx and an inbox pass it on. A crash before hook ends means that it does not run again.
func AfterCommit(ctx context.Context, hook func()) bool {
	return txscope.From(ctx).AfterCommit(hook)
}
