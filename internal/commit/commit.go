// Package commit ends transactions. It tells one that was certainly rolled back from one that may
// have been committed, whatever the driver says.
package commit

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
	"syscall"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// ErrUnknown is postbox.ErrCommitUnknown.
var ErrUnknown = errors.New("the outcome of the commit is unknown")

// errEnded is returned if a transaction no longer exists when it is to be committed.
var errEnded = errors.New("the transaction had already ended: the function called Commit or Rollback, a statement was COMMIT or ROLLBACK, or the database rolled back by itself, as " +
	"MySQL and MariaDB do in a deadlock, and the function did not return that error; what the function executed afterwards is committed")

// Ended returns the [ErrUnknown] of a transaction, or a savepoint, that no longer exists when it is
// to be committed. It wraps the error that shows this.
func Ended(err error) error { return fmt.Errorf("%w: %w: %w", ErrUnknown, errEnded, err) }

// WentBack returns the error of a function that ran in a savepoint, after the transaction was told
// to go back to it. The error of going back is added if it says something new. It does not if the
// database had rolled back the whole transaction before, since the connection was lost, or because
// of the conflict that the function returned.
func WentBack(err, backErr error) error {
	switch {
	case backErr == nil, errors.Is(backErr, sql.ErrTxDone), dialect.EndedByConflict(err, backErr),
		!dialect.Coded(backErr) && IsAway(backErr):
		return err
	default:
		return errors.Join(err, fmt.Errorf("roll back: %w", backErr))
	}
}

// Intact returns [ErrUnknown] if the transaction on conn has ended although the function that used
// it returned no error. On MySQL and MariaDB it costs a statement, unless the last statement of the
// function has changed rows. It cannot detect this if the driver does not expose the status.
func Intact(ctx context.Context, conn *sql.Conn, tx *sql.Tx) error {
	if dialect.MustTellStatus(conn) {
		if _, err := tx.ExecContext(ctx, dialect.TellStatus); err != nil {
			return err
		}
	}
	if dialect.TxStatusOf(conn) == dialect.TxEnded {
		return fmt.Errorf("%w: %w", ErrUnknown, errEnded)
	}
	return nil
}

// Commit commits a transaction of conn. Its error tells a transaction that was certainly rolled
// back from one that may have been committed, for which the error is [ErrUnknown]. The transaction
// was rolled back in two cases. The server says so with an error code. Or the connection is alive,
// so the server did answer: a driver reports in its own words that it rolled back a transaction in
// which a statement had failed.
func Commit(ctx context.Context, conn *sql.Conn, tx *sql.Tx) error {
	err := tx.Commit()
	switch {
	case dialect.NothingToCommit(err):
		return Ended(err)
	case err == nil || errors.Is(err, sql.ErrTxDone) || dialect.RolledBack(err):
		return err
	}
	if !dialect.Coded(err) && conn.PingContext(ctx) == nil {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnknown, err)
}

// BeganElsewhere reports whether a transaction began on another handle than db. A *sql.Tx does not
// expose its handle, so BeganElsewhere reads it by reflection. If a later version of Go changes the
// name or the type of the field, the transaction is assumed to belong to db.
func BeganElsewhere(tx *sql.Tx, db *sql.DB) bool {
	field := reflect.ValueOf(tx).Elem().FieldByName("db")
	return field.IsValid() && field.Type() == reflect.TypeFor[*sql.DB]() && field.Pointer() != reflect.ValueOf(db).Pointer()
}

// outages are errors by which Go's standard library reports that the other side is away.
var outages = []error{
	context.DeadlineExceeded, os.ErrDeadlineExceeded, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, driver.ErrBadConn,
	syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE,
	syscall.ENETUNREACH, syscall.EHOSTUNREACH, syscall.ETIMEDOUT,
}

// IsAway reports whether an error of Go's standard library says that the other side is away.
func IsAway(err error) bool {
	for _, outage := range outages {
		if errors.Is(err, outage) {
			return true
		}
	}
	var netErr net.Error
	return errors.As(err, &netErr)
}
