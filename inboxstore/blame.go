package inboxstore

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

// ErrTransactionLost is in the error of an attempt that failed because of what its handler did to its transaction: its
// connection was lost, for example to a time-out of the handler's own, while the database was there; a statement failed and the
// handler went on; or the handler made the transaction read-only, or ended it. Nothing is settled then, and the attempt counts. What a handler
// committed by itself stays, and is repeated with the next attempt: a [QueueConfig.Rule] can make the message a dead letter at once.
var ErrTransactionLost = errors.New("the handler lost its transaction")

var (
	errSwallowed = fmt.Errorf("%w: one of its statements failed, and it did not return that error, so nothing can be committed", ErrTransactionLost)
	errEnded     = fmt.Errorf("%w: it was ended before the handler was, by a COMMIT or ROLLBACK of the handler's own, a statement that commits, "+
		"or an error after which the database rolls back; what the handler wrote may be committed", ErrTransactionLost)
)

// brokenError is the error of a transaction that could not be ended, or of a handler that reports an outage. blame asks the database
// whose fault it is.
type brokenError struct {
	err error
	// lost: so was the connection.
	lost bool
	// evident: the handler's error, or its lack of one, shows that the handler lost the connection.
	evident bool
	// refused: the server answered, and would not settle.
	refused bool
	// readOnly: the server answered that nothing may be written.
	readOnly bool
}

// Error returns the text of the error.
func (e *brokenError) Error() string { return e.err.Error() }

// Unwrap returns what the driver said.
func (e *brokenError) Unwrap() error { return e.err }

// doubtError is the error of a handler that reports an outage although the database answers. The handler may be at fault, for example if it
// lost its own connection, or the network may have failed for a moment. Such an error is an attempt from the second time on.
type doubtError struct {
	error
	// exhausted: disk or memory was full, either of the server or for this handler alone. In a queue, the circuit decides.
	exhausted bool
}

// Unwrap returns the error itself.
func (e doubtError) Unwrap() error { return e.error }

// refusalError means that the server refuses to remove a message, although the handler did nothing wrong.
type refusalError struct{ error }

// Unwrap returns the error itself.
func (e refusalError) Unwrap() error { return e.error }

const (
	// askTimeout is how long a database that is there may take to say so.
	askTimeout = 10 * time.Second
	// uptimeMargin is how much longer than a transaction a server must have been up: MySQL counts in whole seconds.
	uptimeMargin = 2 * time.Second
)

// inquiry asks the database whether it is there, and whether it can be written to. It asks each once, for all errors that one run of a
// handler reports: a database that hangs takes as long as askTimeout.
type inquiry struct {
	store *Store
	began time.Time // when the handler did

	thereAnswer, writableAnswer *error // nil until asked
}

// inquire returns an inquiry about a handler that began at that time.
func (s *Store) inquire(began time.Time) *inquiry { return &inquiry{store: s, began: began} }

func (i *inquiry) there(ctx context.Context) error {
	if i.thereAnswer == nil {
		err := i.store.ask(ctx, i.began)
		i.thereAnswer = &err
	}
	return *i.thereAnswer
}

func (i *inquiry) writable(ctx context.Context) error {
	if i.writableAnswer == nil {
		_, err := i.store.db.ExecContext(ctx, i.store.statements.TryWrite)
		i.writableAnswer = &err
	}
	return *i.writableAnswer
}

// blame finds out whose fault it is that a transaction broke. The database is asked on another connection: if it answers, is the
// server that it was, and has not restarted since the transaction began, the handler did it.
func (s *Store) blame(live context.Context, database *inquiry, w work, broken *brokenError) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(live), askTimeout)
	defer cancel()
	if err := database.there(ctx); err != nil {
		return outageError{fmt.Errorf("inbox: the database went away under the handler: %w", errors.Join(broken.err, err))}
	}
	switch {
	case broken.refused:
		return s.blameRefusal(ctx, w, broken.err)
	case broken.readOnly:
		return s.blameReadOnly(database.writable(ctx), broken.err)
	case !broken.lost:
		return doubtError{error: broken.err, exhausted: s.statements.Kind.Exhausted(broken.err)}
	}
	lost := fmt.Errorf("%w: the connection was lost, and the database is there: %w", ErrTransactionLost, broken.err)
	if broken.evident {
		return &HandlerError{Err: lost}
	}
	return doubtError{error: lost}
}

// withoutTransaction runs a handler that has no transaction of ours, again when it conflicts with others.
func (s *Store) withoutTransaction(ctx context.Context, handle func() error) error {
	return s.untilNoConflict(ctx, func() error {
		began := time.Now()
		err := handle()
		if err == nil {
			return nil
		}
		return s.blameOutside(ctx, s.inquire(began), err)
	})
}

// blameOutside does the same for the error of a handler that has no transaction of ours. Only an error that reports an outage is asked about.
func (s *Store) blameOutside(live context.Context, database *inquiry, err error) error {
	kind := s.statements.Kind
	var doubt doubtError
	var outage outageError
	switch {
	case errors.Is(err, errStopping):
		return err
	case errors.Is(err, ErrTransactionLost), errors.As(err, &doubt), errors.As(err, &outage): // an inbox within has asked
		return &HandlerError{Err: err}
	case kind.Classify(err) != dialect.Unavailable:
		return &HandlerError{Err: err}
	default:
		return s.blame(live, database, work{}, &brokenError{err: err, readOnly: kind.ReadOnly(err)})
	}
}

// blameRefusal tries what the server refused in a transaction that no handler has touched, and rolls that back. If it works
// there, the handler did something to its own transaction, such as change the role.
func (s *Store) blameRefusal(ctx context.Context, w work, refusal error) error {
	err := spool.InTx(ctx, s.db, s.statements, func(tx *sql.Tx) error {
		if err := w.settle(ctx, tx); err != nil {
			return err
		}
		return errWorks
	})
	switch {
	case errors.Is(err, errWorks) && s.statements.Kind.Exhausted(refusal): // the rollback has made room
		return doubtError{error: refusal, exhausted: true}
	case errors.Is(err, errWorks):
		return &HandlerError{Err: fmt.Errorf("%w: %w", ErrTransactionLost, refusal)}
	case errors.Is(err, spool.ErrLost):
		return err
	case s.statements.Kind.Classify(err) == dialect.Unavailable:
		return outageError{refusal}
	default:
		return refusalError{fmt.Errorf("inbox: settle: %w", refusal)}
	}
}

// blameReadOnly tells a server that became read-only, such as an old primary after a failover, from a handler that must not write
// when others may: it made its own transaction read-only, or met a limit which the server calls by the same name.
func (s *Store) blameReadOnly(tryErr, err error) error {
	if s.statements.Kind.Classify(tryErr) == dialect.Unavailable {
		return outageError{fmt.Errorf("inbox: the database is read-only: %w", err)}
	}
	return &HandlerError{Err: fmt.Errorf("%w: it could not write, and others can: %w", ErrTransactionLost, err)}
}

var errWorks = errors.New("it works, and is rolled back")

// ask returns an error where the database does not answer, is not the server that it was, or has restarted meanwhile.
func (s *Store) ask(ctx context.Context, since time.Time) error {
	if s.statements.Uptime == "" {
		return nil
	}
	var uptime int64
	var server string
	if err := s.db.QueryRowContext(ctx, s.statements.Uptime).Scan(&uptime, &server); err != nil {
		return dialect.HideAddress(err)
	}
	if known := s.server.Swap(&server); known != nil && *known != server {
		return fmt.Errorf("it has been restarted, or is another server: it was %q and is %q", *known, server)
	}
	age := max(time.Since(since), time.Since(since.Round(0))) // also where one of the two clocks stood still
	if up := time.Duration(uptime) * time.Microsecond; up <= age+uptimeMargin {
		return fmt.Errorf("it has been up for %s only", up)
	}
	return nil
}

// meet learns which server this is, once.
func (s *Store) meet(ctx context.Context, conn *sql.Conn) {
	if s.statements.Uptime == "" || s.server.Load() != nil {
		return
	}
	var uptime int64
	var server string
	if conn.QueryRowContext(ctx, s.statements.Uptime).Scan(&uptime, &server) == nil {
		s.server.CompareAndSwap(nil, &server)
	}
}

// doubts remembers the messages under which a connection was lost for an unknown reason. The zero value is ready to use.
type doubts struct {
	mu   sync.Mutex
	seen map[string]struct{}
}

// maxDoubts bounds the memory. Forgetting all gives each message the benefit of the doubt once more.
const maxDoubts = 10_000

// first says whether it is the first time for this message.
func (d *doubts) first(subject []byte) bool {
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

// isOwnContext says whether an error tells of the end of a context, and not of a connection that was too slow: the errors of
// package net and net/url wrap the former. A handler that runs out of its own time has failed.
func isOwnContext(err error) bool {
	var address *url.Error
	var operation *net.OpError
	var name *net.DNSError
	return (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)) &&
		!errors.As(err, &address) && !errors.As(err, &operation) && !errors.As(err, &name)
}
