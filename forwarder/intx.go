package forwarder

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// InTx runs fn in a transaction of db, which the context that fn gets carries too: whatever is published with
// that context is committed with the rest, and forwarders are woken after the commit.
//
// On SQLite, where each transaction waits for those before it and then for the disk, a [GroupCommit] lets them share commits.
//
// An error of fn, or a panic, rolls back. fn runs once: a serialization failure is returned like any error, for
// the caller to run InTx again. When the answer to the commit is lost, the error is
// [postbox.ErrCommitUnknown].
func InTx(ctx context.Context, db *sql.DB, fn func(ctx context.Context, tx *sql.Tx) error) error {
	return InTxWith(ctx, db, nil, fn)
}

// InTxWith is [InTx] with options for the transaction, such as its isolation level. Nil means the default.
func InTxWith(ctx context.Context, db *sql.DB, options *sql.TxOptions, fn func(ctx context.Context, tx *sql.Tx) error) error {
	conn, tx, err := begin(ctx, ctx, db, options)
	if err != nil {
		return fmt.Errorf("begin transaction: %w", err)
	}
	defer func() { _ = conn.Close() }()
	ended := false
	defer func() {
		if !ended { // fn panicked
			_ = tx.Rollback()
		}
	}()
	hooked, committed := postbox.ContextWithHooks(ctx, tx)
	err = fn(hooked, tx)
	ended = true
	if err != nil {
		if rollbackErr := tx.Rollback(); rollbackErr != nil && !errors.Is(rollbackErr, sql.ErrTxDone) {
			return errors.Join(err, fmt.Errorf("roll back: %w", rollbackErr))
		}
		return err
	}
	if err := spool.Commit(ctx, conn, tx); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	_ = conn.Close() // what waits for the commit may need a connection, and this may be the only one
	committed()
	return nil
}

// begin waits for a connection as long as the first context lives. The transaction ends with the second.
func begin(wait, live context.Context, db *sql.DB, options *sql.TxOptions) (*sql.Conn, *sql.Tx, error) {
	conn, err := db.Conn(wait)
	if err != nil {
		return nil, nil, dialect.HintAtPooler(dialect.HideAddress(err))
	}
	tx, err := conn.BeginTx(live, options)
	if err != nil {
		_ = conn.Close()
		return nil, nil, err
	}
	return conn, tx, nil
}
