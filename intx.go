package postbox

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/postbox-go/watermill-postbox/internal/commit"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/txscope"
)

// InTx runs fn in a transaction of db. The context that fn gets carries the transaction: messages
// that are published with that context are committed with fn's other writes, and forwarders are
// woken after the commit.
//
// If ctx already carries a transaction, as in a handler of an inbox, fn runs in a savepoint of that
// transaction: its writes commit with the rest, when the owner of the transaction commits it. While
// fn works, use its context: another InTx with ctx returns an error.
//
// InTx begins a transaction of its own, on a further connection, if the one of ctx began on another
// *sql.DB, has committed, as in a hook of [AfterCommit], or was taken out of ctx by [ContextWithTx]
// with a nil transaction. For one of another library it returns [ErrNoTransaction].
//
// The context that fn gets is for fn, and for goroutines for which fn waits. When fn has returned,
// InTx and Publish with that context return [ErrNoTransaction]. If another goroutine is in a call
// of InTx, of Publish or of an inbox with it at that moment, InTx rolls back the whole transaction,
// even one that another function began, and says so. Do not use tx after fn has returned.
//
// An error of fn, or a panic, rolls back. fn runs once: a serialization failure is returned like
// any other error, and the caller may run InTx again. If ctx ends before the commit begins, InTx
// rolls back, and its error is that of ctx.
//
// The error is [ErrCommitUnknown] when the answer to the commit is lost, and if fn returns nil
// although its transaction has ended: fn ended it itself, or it ignored the error of a deadlock, in
// which MySQL and MariaDB roll back. Then the statements that fn executed afterwards are committed.
// A driver that is wrapped by another one may hide that.
func InTx(ctx context.Context, db *sql.DB, fn func(ctx context.Context, tx *sql.Tx) error) error {
	return InTxWith(ctx, db, nil, fn)
}

// InTxWith is [InTx] with options for the transaction, such as its isolation level. Nil means the
// default. It returns an error if ctx carries a transaction that did not begin with the same
// options, or whose options are not known.
func InTxWith(ctx context.Context, db *sql.DB, options *sql.TxOptions, fn func(ctx context.Context, tx *sql.Tx) error) error {
	if db == nil || fn == nil {
		return errors.New("in transaction: the database or the function is nil")
	}
	if tx, err := carried(ctx, db, options); err != nil {
		return err
	} else if tx != nil {
		return within(ctx, tx, fn)
	}
	conn, tx, err := begin(ctx, db, options)
	if err != nil {
		return fmt.Errorf("begin transaction: %w", err)
	}
	defer func() { _ = conn.Close() }()
	scope := txscope.Hooked(ctx, tx).With(options)
	ended := false
	defer func() {
		if !ended { // fn panicked
			_ = scope.Return()
			_ = tx.Rollback()
		}
	}()
	err = fn(scope.Context(ctx), tx)
	ended = true
	outlived := scope.Return()
	if err == nil {
		err = outlived
	}
	if err == nil {
		err = commitTx(ctx, conn, tx)
	}
	if err != nil {
		rollbackErr := tx.Rollback()
		if dialect.SessionUnfit(err) {
			dialect.Discard(conn)
		}
		if rollbackErr != nil && !errors.Is(rollbackErr, sql.ErrTxDone) && ctx.Err() == nil { // with ctx, the driver ends the transaction
			return errors.Join(err, fmt.Errorf("roll back: %w", rollbackErr))
		}
		return err
	}
	_ = conn.Close() // an AfterCommit hook may need a connection, and this may be the only one
	scope.Committed()
	return nil
}

// commitTx commits, unless ctx has ended: then each driver would return a different error.
func commitTx(ctx context.Context, conn *sql.Conn, tx *sql.Tx) error {
	err := ctx.Err()
	if err == nil {
		err = commit.Intact(ctx, conn, tx)
		if err == nil {
			err = commit.Commit(ctx, conn, tx)
		}
		if errors.Is(err, sql.ErrTxDone) { // the driver has rolled back, or the function has called Commit or Rollback
			err = cmp.Or(ctx.Err(), commit.Ended(err))
		}
	}
	if err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// begin returns a transaction, and its connection.
func begin(ctx context.Context, db *sql.DB, options *sql.TxOptions) (*sql.Conn, *sql.Tx, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, nil, dialect.HintAtPooler(dialect.HideAddress(err))
	}
	tx, err := conn.BeginTx(ctx, options)
	if err != nil {
		if dialect.SessionUnfit(err) {
			dialect.Discard(conn)
		}
		_ = conn.Close()
		return nil, nil, err
	}
	return conn, tx, nil
}
