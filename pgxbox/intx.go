package pgxbox

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	postbox "github.com/postbox-go/watermill-postbox"
)

// InTx runs fn in a transaction of the pool, by the rules of postbox.InTx: messages that are
// published with the context that fn gets are committed with fn's other writes; in a handler of an
// inbox or of a queue on the same pool, fn runs in a savepoint of the handler's transaction; and
// fn runs once, so the caller decides whether to run InTx again after a serialization failure.
func InTx(ctx context.Context, pool *pgxpool.Pool, fn func(ctx context.Context, tx pgx.Tx) error) error {
	return InTxWith(ctx, pool, nil, fn)
}

// InTxWith is [InTx] with options for the transaction, as postbox.InTxWith has them.
func InTxWith(ctx context.Context, pool *pgxpool.Pool, options *sql.TxOptions, fn func(ctx context.Context, tx pgx.Tx) error) error {
	if pool == nil || fn == nil {
		return errors.New("in transaction: the pool or the function is nil")
	}
	return postbox.InTxWith(ctx, handleOf(pool), options, func(ctx context.Context, standard *sql.Tx) error {
		tx, err := txOf(ctx, standard)
		if err != nil {
			return err
		}
		if err := fn(ctx, tx); err != nil {
			return err
		}
		return tx.operate(ctx, func(c *conn) error { return c.idle() })
	})
}

// TxFromContext returns the transaction that the context carries, as postbox.TxFromContext does:
// that of [InTx], of an inbox, or of a queue with Transactional. It returns nil and false if there
// is none, or if it did not begin on the *sql.DB of [Database]: look at the second result, and
// return postbox.ErrNoTransaction.
//
// Who has begun the transaction ends it: Commit and Rollback return an error, so a deferred
// Rollback does no harm. Begin sets a savepoint, which its owner releases or goes back to.
//
// Like any pgx.Tx it is used by one goroutine at a time, and Rows and BatchResults must be closed
// before its next use, and before the handler returns. What pgx calls meanwhile, such as the source
// of CopyFrom or a Scanner, must not use the transaction: no statement, and no TxFromContext.
func TxFromContext(ctx context.Context) (pgx.Tx, bool) {
	standard, found := postbox.TxFromContext(ctx)
	if !found {
		return nil, false
	}
	tx, err := txOf(ctx, standard)
	if err != nil {
		return nil, false
	}
	return tx, true
}
