package inboxtest

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/lib/pq"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/verdict"
	"github.com/postbox-go/watermill-postbox/queue"
)

// Hold waits for the channel, or for the end of the message's context, so that no handler outlives
// its test.
func Hold(ctx context.Context, until <-chan struct{}) error {
	select {
	case <-until:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ErrHandler is the error of a handler that fails.
var ErrHandler = errors.New("handler says no")

// EvilErrors are errors of which a method panics, as those of nil pointers do, or that say nothing.
var EvilErrors = map[string]error{
	"a/opError":       (*net.OpError)(nil),
	"b/pqError":       (*pq.Error)(nil),
	"c/wrapped":       fmt.Errorf("wrapped: %w", (*pq.Error)(nil)),
	"d/batchError":    (*queue.BatchError)(nil),
	"e/empty":         &queue.BatchError{},
	"f/handlerError":  &inboxstore.HandlerError{},
	"g/permanent":     &verdict.PermanentError{},
	"h/nilPermanent":  (*verdict.PermanentError)(nil),
	"i/nilRetryAfter": (*verdict.RetryAfterError)(nil),
}

// RaiseConflict lets the server itself raise the code of a serialization failure, or of a deadlock.
func RaiseConflict(ctx context.Context, dialect postbox.Dialect) error {
	tx, _ := postbox.TxFromContext(ctx)
	raise := "DO $$ BEGIN RAISE EXCEPTION 'Konflikt' USING ERRCODE = '40001'; END $$"
	if dialect == postbox.MySQL {
		raise = "SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'Konflikt'"
	}
	_, err := tx.ExecContext(ctx, raise)
	return err
}

// Slow is a statement that takes longer than any test, or, where its end may be missed, longer than
// a time-out here.
func Slow(dialect postbox.Dialect) string {
	switch dialect {
	// A server may go on with it after the client has gone, and with its transaction, which holds
	// up other tests.
	case postbox.PostgreSQL:
		return "SELECT pg_sleep(2)"
	case postbox.MySQL:
		return "SELECT SLEEP(2)"
	default:
		return "INSERT INTO effects SELECT MAX(i), 0, 'slow' FROM (WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 1000000) SELECT i FROM n)"
	}
}

// ManyConflicts are more than the tries at once of each attempt that a message has.
const ManyConflicts = 20
