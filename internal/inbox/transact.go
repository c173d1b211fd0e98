package inbox

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/commit"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/txscope"
)

// HandlerError is an error of a handler, such as the one that a store runs once, and not an error
// of the store.
type HandlerError struct{ Err error }

// Error returns the text of the handler's error.
func (e *HandlerError) Error() string { return e.Err.Error() }

// Unwrap returns the handler's error.
func (e *HandlerError) Unwrap() error { return e.Err }

// OutageError is an outage of the database, whatever the driver calls it. If the handler of a queue
// has an inbox of its own and returns this error, the queue counts no attempt.
type OutageError struct{ Err error }

// Error returns the text of the error.
func (e OutageError) Error() string { return e.Err.Error() }

// Unwrap returns the wrapped error.
func (e OutageError) Unwrap() error { return e.Err }

// ErrStopping is the result of a handler if its queue stops before the message was taken or
// answered. It counts no attempt.
var ErrStopping = errors.New("the subscription ends")

// Work is the content of one transaction.
type Work struct {
	// Begin runs the first statement of Postbox; nil for none. Its error is returned unchanged.
	Begin func(ctx context.Context, tx *sql.Tx) error
	// Handle runs the handler. Its error is returned as a [HandlerError], unless the database
	// failed or the error is [ErrStopping]. A Handle for several messages calls intact between
	// them, and returns the error of intact.
	Handle func(ctx context.Context, intact func() error) error
	// Settle runs the last statement of Postbox; nil for none.
	Settle func(ctx context.Context, tx *sql.Tx) error
	// NoticesEnd: if the transaction has ended, Settle changes nothing and fails.
	NoticesEnd bool
}

// Transact does work in a transaction of its own. The context of each part carries that
// transaction. Transact waits for a connection until wait ends; the transaction lives until live
// ends. If the transaction cannot be ended as intended, Transact asks the database for the cause.
// It returns the connection first, since a pool may have no other.
func (c *Core) Transact(wait, live context.Context, w Work) error {
	began := time.Now()
	err := c.attempt(wait, live, w)
	if err := faultIn(err); err != nil {
		return err
	}
	if broken, ok := err.(*brokenError); ok { //nolint:errorlint // it is the outermost error, or there is none
		return c.blame(live, c.Inquire(began), w, broken)
	}
	return err
}

// faultIn returns the error in err that says itself that the handler is at fault, as that of
// pgxbox about open rows does: its text begins with the cause.
func faultIn(err error) error {
	var ofHandler *HandlerError
	var fault interface{ OfHandler() error }
	if !errors.As(err, &fault) || errors.As(err, &ofHandler) {
		return nil
	}
	return &HandlerError{Err: fmt.Errorf("%w: %w", fault.OfHandler(), ErrTransactionLost)}
}

func (c *Core) attempt(wait, live context.Context, w Work) (err error) {
	giveUp := func(error) {}
	if w.Settle != nil {
		live, giveUp = context.WithCancelCause(live)
		defer giveUp(nil)
	}
	conn, err := c.DB.Conn(wait)
	if err != nil {
		return OutageError{fmt.Errorf("inbox: connect: %w", dialect.HideAddress(err))}
	}
	defer func() { _ = conn.Close() }()
	c.meet(live, conn)
	handled := false
	defer func() { // after the rollback, and also after a panic
		if handled {
			c.mend(live, conn)
		}
		if dialect.SessionUnfit(err) {
			dialect.Discard(conn)
		}
	}()
	tx, err := conn.BeginTx(live, c.TxOptions)
	if err != nil {
		return OutageError{fmt.Errorf("inbox: begin transaction: %w", err)}
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
	scope := txscope.Hooked(live, tx).With(c.TxOptions)
	hooked := scope.Context(live)
	t := transaction{core: c, live: live, conn: conn, tx: tx}
	if w.Begin != nil {
		if err := w.Begin(hooked, tx); err != nil {
			return err
		}
	}
	handled = true
	if err := t.handle(hooked, w); err != nil {
		return err
	}
	if w.Settle != nil {
		if err := t.settleSoon(hooked, w, giveUp); err != nil {
			return t.unsettled(err)
		}
	}
	if err := t.commit(); err != nil {
		return err
	}
	handled = false
	_ = conn.Close() // a hook that runs after the commit may need a connection, and this may be the only one
	scope.Committed()
	return nil
}

// settleSoon settles. If that waits too long, because another transaction has locked the row of a
// message, it gives up the whole transaction: the waiting worker could be the only one of its
// queue.
func (t transaction) settleSoon(hooked context.Context, w Work, giveUp context.CancelCauseFunc) error {
	if !t.core.Statements.LocksRows() {
		return w.Settle(hooked, t.tx)
	}
	patience := time.AfterFunc(drain.LockPatience, func() { giveUp(spool.ErrRowLocked) })
	err := w.Settle(hooked, t.tx)
	if !patience.Stop() { // the transaction is being given up, so it must not be committed
		giveUp(spool.ErrRowLocked)
		err = cmp.Or(err, spool.ErrRowLocked)
	}
	return err
}

// transaction is one transaction of a handler.
type transaction struct {
	core *Core
	live context.Context //nolint:containedctx // the context with which the transaction began
	conn *sql.Conn
	tx   *sql.Tx
}

// handle runs the handler. Then it checks that its transaction is still the one that began, and can
// be committed.
func (t transaction) handle(hooked context.Context, w Work) error {
	scope := txscope.From(hooked)
	defer func() { _ = scope.Return() }() // also after a panic
	err := w.Handle(hooked, t.intact)
	outlived := scope.Return()
	if err == nil { // a function around the handler may have swallowed the error, which the scope keeps
		err = scope.Failure()
	}
	switch {
	case err == nil && outlived != nil:
		return &HandlerError{Err: outlived}
	case errors.Is(err, ErrStopping), isChecked(err):
		return err
	case err != nil:
		return t.failed(err)
	case t.live.Err() != nil: // the transaction learns of the end later than the handler, and would commit until then
		return t.late()
	case w.NoticesEnd:
		return t.check()
	}
	return t.intact()
}

// intact is check for the case that no later statement of Postbox detects the end of the
// transaction. MySQL's server rolls back the whole transaction in a deadlock, and its error does
// not tell the driver. If the handler ignored that error, its later writes would be committed
// without its claim and its earlier ones. On MySQL and MariaDB intact costs a statement, unless the
// last statement of the handler has changed rows.
func (t transaction) intact() error {
	if err := t.check(); err != nil || !dialect.MustTellStatus(t.conn) {
		return err
	}
	_, _ = t.tx.ExecContext(t.live, dialect.TellStatus) // check sees the effect of any error
	return t.check()
}

// isChecked reports whether an error comes from check.
func isChecked(err error) bool {
	_, broken := err.(*brokenError)  //nolint:errorlint // the handler may return an error that wraps one of another inbox
	_, failed := err.(*HandlerError) //nolint:errorlint // as above
	return broken || failed
}

// check returns an error if the handler has succeeded, but its transaction has not.
func (t transaction) check() error {
	switch dialect.TxStatusOf(t.conn) {
	case dialect.TxFailed:
		return &HandlerError{Err: errSwallowed}
	case dialect.TxEnded:
		return &HandlerError{Err: errEnded}
	case dialect.TxLost:
		return &brokenError{err: errors.New("the handler returned no error"), lost: true, evident: true}
	case dialect.TxUnknown, dialect.TxOpen:
	}
	if t.core.Statements.BeginAgain == "" {
		return nil
	}
	_, err := t.tx.ExecContext(t.live, t.core.Statements.BeginAgain)
	switch {
	case err == nil:
		_, _ = t.tx.ExecContext(t.live, "ROLLBACK")
		return &HandlerError{Err: errEnded}
	case errors.Is(err, sql.ErrTxDone):
		return &HandlerError{Err: errEnded}
	default:
		return nil
	}
}

// late returns the error of a handler that continued after its context had ended. If a deadline of
// the delivery ended the context, the handler has failed. Otherwise the process is stopping.
func (t transaction) late() error {
	cause := context.Cause(t.live)
	if errors.Is(cause, spool.ErrRowLocked) {
		return fmt.Errorf("inbox: settle: %w", cause)
	}
	err := fmt.Errorf("inbox: the handler did not end in time: %w", cause)
	if errors.Is(cause, context.DeadlineExceeded) {
		return &HandlerError{Err: err}
	}
	return err
}

// failed decides whether the handler failed, or whether the database failed or may have failed
// during the handler.
func (t transaction) failed(err error) error {
	kind := t.core.Statements.Kind
	elsewhere := kind.Can().ErrorsEndTransactions && dialect.TxStatusOf(t.conn) == dialect.TxOpen // here, an error would have ended this transaction
	rollbackErr := t.tx.Rollback()
	lost := t.lost(err, rollbackErr)
	switch away := kind.Classify(err) == dialect.Unavailable; {
	case faultIn(err) != nil:
		return &HandlerError{Err: err}
	case lost && (away || t.live.Err() == nil):
		return t.disconnected(err, rollbackErr)
	case away:
		return &brokenError{err: err, readOnly: kind.ReadOnly(err) && !elsewhere}
	default:
		return &HandlerError{Err: err}
	}
}

// disconnected returns the error of a transaction whose connection was lost. If the server's error
// for it is no outage and does not say that the connection was killed, or the handler's context
// ended, the handler is at fault.
func (t transaction) disconnected(err, rollbackErr error) error {
	kind := t.core.Statements.Kind
	evident := kind.Classify(err) != dialect.Unavailable && !kind.Killed(err) &&
		(IsOwnContext(err) || dialect.Coded(err) || dialect.Coded(rollbackErr))
	return &brokenError{err: errors.Join(err, rollbackErr), lost: true, evident: evident}
}

// lost reports whether the error of a rollback, which followed another error, means that the
// connection was lost. If disk or memory is full, a database may roll back by itself, and then
// there is nothing left to roll back.
func (t transaction) lost(err, rollbackErr error) bool {
	if rollbackErr == nil || errors.Is(rollbackErr, sql.ErrTxDone) {
		return false
	}
	kind := t.core.Statements.Kind
	return !kind.Can().RollsBackWhenFull || !kind.Exhausted(err)
}

// unsettled finds out why the last statement failed.
func (t transaction) unsettled(err error) error {
	status := dialect.TxStatusOf(t.conn)
	rollbackErr := t.tx.Rollback()
	switch {
	case t.live.Err() != nil:
		return t.late()
	case errors.Is(err, sql.ErrTxDone), errors.Is(err, spool.ErrLost) && status == dialect.TxEnded:
		return &HandlerError{Err: errEnded}
	case errors.Is(err, spool.ErrLost):
		return err
	case t.core.Statements.Kind.Classify(err) == dialect.Conflict:
		return err
	case dialect.Coded(err) && !t.lost(err, rollbackErr):
		return &brokenError{err: err, refused: true}
	default:
		return t.disconnected(err, rollbackErr)
	}
}

func (t transaction) commit() error {
	if t.live.Err() != nil {
		return t.late()
	}
	err := commit.Commit(t.live, t.conn, t.tx)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, sql.ErrTxDone):
		return &HandlerError{Err: errEnded}
	case errors.Is(err, postbox.ErrCommitUnknown):
		return fmt.Errorf("inbox: commit: %w", err)
	case dialect.TxStatusOf(t.conn) == dialect.TxLost: // the server had ended the connection earlier, and reports it only now
		return t.disconnected(fmt.Errorf("inbox: commit: %w", err), nil)
	default:
		// A server that refuses a commit refuses the work of the handler: a constraint that is
		// checked at the end, or a statement that failed and was ignored.
		return &HandlerError{Err: fmt.Errorf("inbox: commit: %w", err)}
	}
}
