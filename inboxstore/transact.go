package inboxstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// HandlerError is an error of a handler, such as the one given to [Store.Once], and not of the store.
type HandlerError struct{ Err error }

// Error returns the text of the handler's error.
func (e *HandlerError) Error() string { return e.Err.Error() }

// Unwrap returns the handler's error.
func (e *HandlerError) Unwrap() error { return e.Err }

// storeError is one that fn returns to transact for the store, not for the handler.
type storeError struct{ error }

// outageError is one of the database's, whatever the driver calls it. A queue whose handler comes back with it, since it has
// an inbox of its own, counts no attempt.
type outageError struct{ error }

// Unwrap returns the error itself.
func (e outageError) Unwrap() error { return e.error }

// transact runs fn in a transaction of our own, which the context that fn gets carries. It waits for the pool no longer
// than the first context lives; the transaction lives as long as the second. Errors of fn come back as [HandlerError],
// unless it was the database that failed.
func (s *Store) transact(wait, live context.Context, fn func(ctx context.Context, tx *sql.Tx) error) error {
	conn, err := s.db.Conn(wait)
	if err != nil {
		return outageError{fmt.Errorf("inbox: connect: %w", dialect.HideAddress(err))}
	}
	defer func() { _ = conn.Close() }()
	tx, err := conn.BeginTx(live, s.config.TxOptions)
	if err != nil {
		return outageError{fmt.Errorf("inbox: begin transaction: %w", err)}
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
	hooked, committed := postbox.ContextWithHooks(live, tx)
	if err := fn(hooked, tx); err != nil {
		return failed(err, tx.Rollback())
	}
	// The transaction hears of it a moment later than fn, and would commit until then.
	if err := live.Err(); err != nil {
		return fmt.Errorf("inbox: the handler did not end in time: %w", err)
	}
	if err := spool.Commit(live, conn, tx); err != nil {
		err = fmt.Errorf("inbox: commit: %w", err)
		if errors.Is(err, postbox.ErrCommitUnknown) {
			return err
		}
		// A server that refuses a commit refuses what the handler did: a constraint that is checked at the end, or a
		// statement that failed and was passed over.
		return failed(err, nil)
	}
	_ = conn.Close() // what waits for the commit may need a connection, and this may be the only one
	committed()
	return nil
}

// failed tells a handler that failed from one whose database went away: a rollback that fails means that the
// connection is lost.
func failed(err, rollbackErr error) error {
	var own storeError
	if errors.As(err, &own) {
		return own.error
	}
	lost := rollbackErr != nil && !errors.Is(rollbackErr, sql.ErrTxDone)
	if lost || dialect.Classify(err) == dialect.Unavailable {
		return outageError{fmt.Errorf("inbox: the database went away under the handler: %w", errors.Join(err, rollbackErr))}
	}
	return &HandlerError{Err: err}
}

// outlive returns a context that is cancelled the given time after ctx is, and a function that ends it.
func outlive(ctx context.Context, by time.Duration) (live context.Context, end func()) {
	live, cancel := context.WithCancel(context.WithoutCancel(ctx))
	// A timer that runs when live has ended is left to expire: it then cancels what has ended.
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(by, cancel) })
	return live, func() {
		stop()
		cancel()
	}
}
