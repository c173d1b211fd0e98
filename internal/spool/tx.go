package spool

import (
	"context"
	"database/sql"
	"errors"

	"github.com/postbox-go/watermill-postbox/internal/commit"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// Affected returns the number of changed rows.
func Affected(result sql.Result, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// ErrNoLetter means that a message was not buried although the database reports no error: a trigger
// of the user prevents the dead letter from being stored.
var ErrNoLetter = errors.New("the database reported no error, but stored no dead letter")

// Buried returns the error of a statement that stores one dead letter. It returns [ErrNoLetter] if
// the statement has stored none.
func Buried(result sql.Result, err error) error {
	stored, err := Affected(result, err)
	if err == nil && stored == 0 {
		err = ErrNoLetter
	}
	return err
}

// Exec executes a query in a transaction. [Prepared.InTx] and [Directly] are of this type.
type Exec func(ctx context.Context, tx *sql.Tx, query dialect.Query) (sql.Result, error)

// Directly executes a query without preparing it.
func Directly(ctx context.Context, tx *sql.Tx, query dialect.Query) (sql.Result, error) {
	return tx.ExecContext(ctx, query.Text, query.Args...)
}

// conflictTries is how often a function is tried immediately before its conflict with other
// transactions becomes an error.
const conflictTries = 5

// UntilNoConflict calls try. If it conflicts with other transactions, UntilNoConflict calls it
// again, at most five times in all.
func UntilNoConflict(isConflict func(err error) bool, try func() error) error {
	var err error
	for range conflictTries {
		if err = try(); !isConflict(err) {
			break
		}
	}
	return err
}

// Conflicts returns a function that reports whether a statement failed because of another
// transaction.
func Conflicts(kind dialect.Kind) func(err error) bool {
	return func(err error) bool { return kind.Classify(err) == dialect.Conflict }
}

// InTx runs fn in a transaction, and again if that conflicts with another one. If the answer to the
// commit is lost, the error is [postbox.ErrCommitUnknown].
func InTx(ctx context.Context, db *sql.DB, statements *dialect.Statements, fn func(tx *sql.Tx) error) error {
	return UntilNoConflict(Conflicts(statements.Kind), func() error { return Once(ctx, db, statements, fn) })
}

// Once is [InTx] without a second try.
func Once(ctx context.Context, db *sql.DB, statements *dialect.Statements, fn func(tx *sql.Tx) error) (err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return dialect.HideAddress(err)
	}
	defer func() {
		if dialect.SessionUnfit(err) {
			dialect.Discard(conn)
		}
		_ = conn.Close()
	}()
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: statements.Isolation})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after a panic: a connection with an open transaction cannot be closed
	if err := fn(tx); err != nil {
		return errors.Join(err, ignoreDone(tx.Rollback()))
	}
	return commit.Commit(ctx, conn, tx)
}

// ignoreDone drops the error of rolling back a transaction that the driver has already rolled back.
func ignoreDone(err error) error {
	if errors.Is(err, sql.ErrTxDone) {
		return nil
	}
	return err
}
