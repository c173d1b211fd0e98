package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// ErrTransactionLost is in the error of an attempt that failed because the handler broke its
// transaction. There are three cases. The connection was lost while the database was available, for
// example because of a time-out of the handler's own. A statement failed and the handler continued.
// Or the handler made the transaction read-only, or ended it. Then nothing is settled, and the
// attempt counts. Writes that a handler committed by itself stay. A queue repeats them. An inbox
// does not, since its claim was committed with them.
var ErrTransactionLost = errors.New("the handler lost its transaction")

var (
	errSwallowed = fmt.Errorf("%w: one of its statements failed, and it did not return that error, so nothing can be committed", ErrTransactionLost)
	errEnded     = fmt.Errorf("%w: the transaction ended before the handler returned, through a COMMIT or ROLLBACK of the handler, a statement that commits, "+
		"or an error after which the database rolls back; the writes of the handler may be committed", ErrTransactionLost)
)

// brokenError is the error of a transaction that could not be ended, or of a handler that reports
// an outage. blame then asks the database to find the cause.
type brokenError struct {
	err error
	// lost: the connection was lost too.
	lost bool
	// evident: the handler's error, or the lack of one, shows that the handler lost the connection.
	evident bool
	// refused: the server answered, and refused to settle.
	refused bool
	// readOnly: the server answered that writes are not allowed.
	readOnly bool
}

// Error returns the text of the error.
func (e *brokenError) Error() string { return e.err.Error() }

// Unwrap returns the driver's error.
func (e *brokenError) Unwrap() error { return e.err }

// DoubtError is the error of a handler that reports an outage although the database answers. The
// handler may be at fault, for example if it lost its own connection, or the network may have
// failed for a moment. Such an error counts as an attempt from the second time on.
type DoubtError struct {
	Err error
	// Exhausted: disk or memory was full, either on the server or for this handler alone. In a
	// queue, the circuit decides which.
	Exhausted bool
}

// Error returns the text of the error.
func (e DoubtError) Error() string { return e.Err.Error() }

// Unwrap returns the wrapped error.
func (e DoubtError) Unwrap() error { return e.Err }

// RefusalError means that the server refuses to remove a message, although the handler did nothing
// wrong.
type RefusalError struct{ Err error }

// Error returns the text of the error.
func (e RefusalError) Error() string { return e.Err.Error() }

// Unwrap returns the wrapped error.
func (e RefusalError) Unwrap() error { return e.Err }

const (
	// askTimeout is the time within which an available database must answer.
	askTimeout = 10 * time.Second
	// uptimeMargin is added to the age of a transaction when it is compared with the server's
	// uptime, because MySQL counts whole seconds.
	uptimeMargin = 2 * time.Second
)

// Inquiry asks the database whether it is available, and whether it can be written to. It asks each
// question once for all errors that one run of a handler reports, because a database that hangs
// takes as long as askTimeout.
type Inquiry struct {
	core  *Core
	began time.Time // when the handler began

	thereAnswer, writableAnswer *error // nil until asked
}

// Inquire returns an inquiry about a handler that began at the given time.
func (c *Core) Inquire(began time.Time) *Inquiry { return &Inquiry{core: c, began: began} }

func (i *Inquiry) there(ctx context.Context) error {
	if i.thereAnswer == nil {
		err := i.core.ask(ctx, i.began)
		i.thereAnswer = &err
	}
	return *i.thereAnswer
}

func (i *Inquiry) writable(ctx context.Context) error {
	if i.writableAnswer == nil {
		_, err := i.core.DB.ExecContext(ctx, i.core.Statements.TryWrite)
		i.writableAnswer = &err
	}
	return *i.writableAnswer
}

// blame finds out why a transaction broke. It asks the database on another connection. If the same
// server answers, and has not restarted since the transaction began, the handler is at fault.
func (c *Core) blame(live context.Context, database *Inquiry, w Work, broken *brokenError) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(live), askTimeout)
	defer cancel()
	if err := database.there(ctx); err != nil {
		return OutageError{fmt.Errorf("inbox: the database became unavailable while the handler ran: %w", errors.Join(broken.err, err))}
	}
	switch {
	case broken.refused:
		return c.blameRefusal(ctx, w, broken.err)
	case broken.readOnly:
		return c.blameReadOnly(database.writable(ctx), broken.err)
	case !broken.lost:
		return DoubtError{Err: broken.err, Exhausted: c.Statements.Kind.Exhausted(broken.err)}
	}
	lost := fmt.Errorf("%w: the connection was lost, but the database is available: %w", ErrTransactionLost, broken.err)
	if broken.evident {
		return &HandlerError{Err: lost}
	}
	return DoubtError{Err: lost}
}

// BlameCommit does the same for a commit whose answer was lost, and which the server has not made.
func (c *Core) BlameCommit(live context.Context, began time.Time, err error) error {
	return c.blame(live, c.Inquire(began), Work{}, &brokenError{err: err, lost: true})
}

// WithoutTransaction runs a handler without a transaction of Postbox, and again if it conflicts
// with others.
func (c *Core) WithoutTransaction(ctx context.Context, handle func() error) error {
	return c.UntilNoConflict(ctx, func() error {
		began := time.Now()
		err := handle()
		if err == nil {
			return nil
		}
		return c.BlameOutside(ctx, c.Inquire(began), err)
	})
}

// BlameOutside finds out the cause of the error of a handler without a transaction of Postbox. It
// asks the database only if the error reports an outage.
func (c *Core) BlameOutside(live context.Context, database *Inquiry, err error) error {
	kind := c.Statements.Kind
	var doubt DoubtError
	var outage OutageError
	switch {
	case errors.Is(err, ErrStopping):
		return err
	case errors.Is(err, ErrTransactionLost), errors.As(err, &doubt), errors.As(err, &outage): // a nested inbox has already asked
		return &HandlerError{Err: err}
	case kind.Classify(err) != dialect.Unavailable:
		return &HandlerError{Err: err}
	default:
		return c.blame(live, database, Work{}, &brokenError{err: err, readOnly: kind.ReadOnly(err)})
	}
}

// blameRefusal repeats the refused statement in a new transaction without a handler, and rolls that
// back. If the statement works there, the handler changed its own transaction, for example its
// role.
func (c *Core) blameRefusal(ctx context.Context, w Work, refusal error) error {
	err := spool.InTx(ctx, c.DB, c.Statements, func(tx *sql.Tx) error {
		if err := w.Settle(ctx, tx); err != nil {
			return err
		}
		return errWorks
	})
	if errors.Is(err, ErrTransactionLost) { // the statement ran, and missed what the handler's transaction has
		err = errWorks
	}
	switch {
	case errors.Is(err, errWorks) && c.Statements.Kind.Exhausted(refusal): // the rollback has made room
		return DoubtError{Err: refusal, Exhausted: true}
	case errors.Is(err, errWorks):
		return &HandlerError{Err: fmt.Errorf("%w: %w", ErrTransactionLost, refusal)}
	case errors.Is(err, spool.ErrLost):
		return err
	case c.Statements.Kind.Classify(err) == dialect.Unavailable:
		return OutageError{refusal}
	default:
		return RefusalError{fmt.Errorf("inbox: settle: %w", refusal)}
	}
}

// blameReadOnly distinguishes two cases. The server may have become read-only, such as an old
// primary after a failover. Or only the handler cannot write: it made its own transaction
// read-only, or met a limit that the server reports with the same code.
func (c *Core) blameReadOnly(tryErr, err error) error {
	if c.Statements.Kind.Classify(tryErr) == dialect.Unavailable {
		return OutageError{fmt.Errorf("inbox: the database is read-only: %w", err)}
	}
	return &HandlerError{Err: fmt.Errorf("%w: it could not write, but other transactions can: %w", ErrTransactionLost, err)}
}

var errWorks = errors.New("it works, and is rolled back")

// ask returns an error if the database does not answer, is another server than before, or has
// restarted meanwhile.
func (c *Core) ask(ctx context.Context, since time.Time) error {
	if c.Statements.Uptime == "" {
		return nil
	}
	var uptime int64
	var server string
	if err := c.DB.QueryRowContext(ctx, c.Statements.Uptime).Scan(&uptime, &server); err != nil {
		return dialect.HideAddress(err)
	}
	if known := c.server.Swap(&server); known != nil && *known != server {
		return fmt.Errorf("it has been restarted, or is another server: it was %q and is %q", *known, server)
	}
	age := max(time.Since(since), time.Since(since.Round(0))) // also correct if one of the two clocks stood still
	if up := time.Duration(uptime) * time.Microsecond; up <= age+uptimeMargin {
		return fmt.Errorf("it has been up for %s only", up)
	}
	return nil
}

// meet reads the identity of the server, once.
func (c *Core) meet(ctx context.Context, conn *sql.Conn) {
	if c.Statements.Uptime == "" || c.server.Load() != nil {
		return
	}
	var uptime int64
	var server string
	if conn.QueryRowContext(ctx, c.Statements.Uptime).Scan(&uptime, &server) == nil {
		c.server.CompareAndSwap(nil, &server)
	}
}

// Doubts remembers the messages during which a connection was lost for an unknown reason. The zero
// value is ready to use.
type Doubts struct {
	mu   sync.Mutex
	seen map[string]struct{}
}

// maxDoubts bounds the memory. When it is reached, all messages are forgotten, and each gets one
// more attempt that does not count.
const maxDoubts = 10_000

// First reports whether the message has not been seen before.
func (d *Doubts) First(subject []byte) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, seen := d.seen[string(subject)]; seen {
		return false
	}
	if d.seen == nil || len(d.seen) >= maxDoubts {
		d.seen = map[string]struct{}{}
	}
	d.seen[string(subject)] = struct{}{}
	return true
}

// IsOwnContext reports whether an error comes from the end of a context, and not from a slow
// connection: errors of packages net and net/url wrap the same errors. A handler that runs out of
// its own time has failed.
func IsOwnContext(err error) bool {
	var address *url.Error
	var operation *net.OpError
	var name *net.DNSError
	return (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)) &&
		!errors.As(err, &address) && !errors.As(err, &operation) && !errors.As(err, &name)
}
