package postbox

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/postbox-go/watermill-postbox/internal/commit"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/txscope"
)

// carried returns the transaction in ctx that serves a caller who needs one on db with these
// options, or nil if there is none. A second transaction would not be atomic with the first. If
// each handler held a connection and waited for another one, none would be left.
func carried(ctx context.Context, db *sql.DB, options *sql.TxOptions) (*sql.Tx, error) {
	if _, err := txscope.From(ctx).Live(); err != nil {
		return nil, fmt.Errorf("in transaction: %w", err)
	}
	tx, found := TxFromContext(ctx)
	if !found || commit.BeganElsewhere(tx, db) {
		return nil, nil
	}
	if !txscope.From(ctx).Offers(options) {
		return nil, fmt.Errorf("in transaction: the context carries a transaction that did not begin with the options %+v, and the options of a running transaction cannot change: begin that transaction with them, "+
			"or remove it from the context with postbox.ContextWithTx(ctx, nil) to begin a separate one", *options)
	}
	return tx, nil
}

// isGone says whether an error of going back to a savepoint means that the savepoint no longer
// exists, because the function has ended the transaction. If the connection was lost, the database
// has rolled back.
func isGone(err error) bool { return errors.Is(err, sql.ErrTxDone) || dialect.Coded(err) }

// savepoints numbers savepoints: one may stand within another one.
var savepoints atomic.Int64

// within runs fn in a savepoint of the transaction that ctx carries.
func within(ctx context.Context, tx *sql.Tx, fn func(ctx context.Context, tx *sql.Tx) error) error {
	set, rollback, release := dialect.Savepoint(fmt.Sprintf("postbox_in_tx_%d", savepoints.Add(1)))
	live := context.WithoutCancel(ctx) // on SQLite a statement that is interrupted rolls back the whole transaction
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("begin in the transaction of the context: %w", err)
	}
	scope, err := txscope.Within(ctx)
	if err != nil {
		return fmt.Errorf("begin in the transaction of the context: %w", err)
	}
	defer scope.Leave()
	if _, err := tx.ExecContext(live, set); err != nil {
		return fmt.Errorf("begin in the transaction of the context: %w", err)
	}
	released := false
	rollBack := func() error {
		released = true
		_, err := tx.ExecContext(live, rollback)
		if err == nil {
			_, err = tx.ExecContext(live, release)
		}
		return err
	}
	back := func(err error) error { return commit.WentBack(err, rollBack()) }
	defer func() {
		if !released { // fn panicked
			_ = scope.Return()
			_ = back(nil)
		}
	}()
	err = fn(scope.Context(ctx), tx)
	outlived := scope.Return()
	if err == nil { // an error that a function around a handler has swallowed
		err = cmp.Or(scope.Failure(), outlived)
	}
	if err != nil {
		return back(err)
	}
	if err := ctx.Err(); err != nil {
		return back(fmt.Errorf("commit: %w", err))
	}
	if _, err := tx.ExecContext(live, release); err != nil {
		if backErr := rollBack(); isGone(backErr) {
			err = cmp.Or(ctx.Err(), commit.Ended(err))
		} else {
			err = commit.WentBack(err, backErr)
		}
		return fmt.Errorf("commit: %w", err)
	}
	released = true
	scope.Committed()
	return nil
}
