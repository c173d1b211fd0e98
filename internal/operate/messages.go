package operate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/audit"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// ErrReady is returned if a message does not wait for a time, so it cannot get another one.
var ErrReady = errors.New("message is ready")

// RunNow makes a waiting message due. It leaves a ready message unchanged.
func (o *Operator) RunNow(ctx context.Context, name string, id int64) error {
	act := audit.NewAct(audit.ActRunNow, name).On("message %d", id)
	return o.change(ctx, fmt.Sprintf("run message %d of", id), act, func(tx *sql.Tx, s *spool.Spool) (bool, error) {
		act.Affected = 0
		found, err := o.lock(ctx, tx, s, id)
		if err != nil || found.ref.State == dialect.StateReady {
			return false, err
		}
		act.Affected = 1
		return false, o.due(ctx, tx, s, found, 0)
	})
}

// Reschedule makes a waiting message due at the given time. If its drainer may have the message in memory, the drainer
// is notified.
func (o *Operator) Reschedule(ctx context.Context, name string, id int64, at time.Time) error {
	act := audit.NewAct(audit.ActReschedule, name).On("message %d", id).Noting("at " + at.UTC().Format(time.RFC3339))
	act.Affected = 1
	return o.change(ctx, fmt.Sprintf("reschedule message %d of", id), act, func(tx *sql.Tx, s *spool.Spool) (bool, error) {
		found, err := o.lockWaiting(ctx, tx, s, id)
		if err != nil {
			return false, err
		}
		return found.due, o.due(ctx, tx, s, found, at.UnixMicro())
	})
}

// Bury makes a ready or waiting message a dead letter. The transaction that removes the message decides. If it is that
// of the drainer, the message has been handled. If it is this one, the writes of a handler in a transaction of its own
// are rolled back. A drainer that has the message in memory notices the spool's new version, and forgets the message.
func (o *Operator) Bury(ctx context.Context, name string, id int64, reason string) error {
	act := audit.NewAct(audit.ActBury, name).On("message %d", id).Noting(reason)
	act.Affected = 1
	return o.change(ctx, fmt.Sprintf("bury message %d of", id), act, func(tx *sql.Tx, s *spool.Spool) (bool, error) {
		found, err := o.lock(ctx, tx, s, id)
		if err != nil {
			return false, err
		}
		return o.bury(ctx, tx, s, found, reason)
	})
}

// bury makes a locked message a dead letter, and reports whether its drainer should notice.
func (o *Operator) bury(ctx context.Context, tx *sql.Tx, s *spool.Spool, found locked, reason string) (notice bool, err error) {
	ref := found.ref
	burial := dialect.Burial{Subject: spool.MessageSubject(ref.ID, ref.CreatedAt), Error: spool.ErrorText(errors.New(buryNote + reason)), Cause: dialect.CauseOperator}
	if err := spool.Buried(spool.Directly(ctx, tx, o.statements.BuryWaiting(s.ID(), ref, burial))); err != nil {
		return false, err
	}
	if err := note(ctx, tx, o.statements, burial.Subject, burial.Error); err != nil {
		return false, err
	}
	removed, err := changed(spool.Directly(ctx, tx, o.statements.RemoveMessage(s.ID(), ref)))
	if err == nil && !removed {
		err = ErrNotFound
	}
	// A drainer may have the message in memory, or must read the messages behind it.
	return found.due || ref.State != dialect.StateScheduled, err
}

// locked is a message that no other transaction changes or removes while this one lasts.
type locked struct {
	ref      dialect.Ref
	parked   bool
	due      bool  // a drainer may have it in memory
	at       int64 // when it is due; of no meaning if it is ready
	attempts int
}

// lock locks a message. On PostgreSQL a message that fails for the first time while a statement waits for it moves to
// another table. That statement does not find it there, but the next one does.
func (o *Operator) lock(ctx context.Context, tx *sql.Tx, s *spool.Spool, id int64) (locked, error) {
	query := o.statements.LockMessage(dialect.Lookup{Spool: s.ID(), ID: id})
	found, err := lockBy(ctx, tx, query, id)
	if errors.Is(err, ErrNotFound) {
		found, err = lockBy(ctx, tx, query, id)
	}
	return found, err
}

// lockListed locks a message where it was listed, or where it is now.
func (o *Operator) lockListed(ctx context.Context, tx *sql.Tx, s *spool.Spool, at dialect.Place) (locked, error) {
	found, err := lockBy(ctx, tx, o.statements.LockListed(s.ID(), at), at.ID)
	if errors.Is(err, ErrNotFound) {
		return o.lock(ctx, tx, s, at.ID)
	}
	return found, err
}

func lockBy(ctx context.Context, tx *sql.Tx, query dialect.Query, id int64) (locked, error) {
	found := locked{ref: dialect.Ref{ID: id}}
	err := tx.QueryRowContext(ctx, query.Text, query.Args...).Scan(
		&found.ref.State, &found.ref.Lane, &found.ref.CreatedAt, &found.parked, &found.due, &found.at, &found.attempts)
	if errors.Is(err, sql.ErrNoRows) {
		return found, ErrNotFound
	}
	return found, err
}

// lockWaiting locks a message that is not ready.
func (o *Operator) lockWaiting(ctx context.Context, tx *sql.Tx, s *spool.Spool, id int64) (locked, error) {
	found, err := o.lock(ctx, tx, s, id)
	if err == nil && found.ref.State == dialect.StateReady {
		err = fmt.Errorf("%w: it is handled as soon as possible, and may be running now; only a message that is scheduled, retrying or parked can be rescheduled",
			ErrReady)
	}
	return found, err
}

// due sets the time of a message in microseconds, 0 for now. A parked message gets all its attempts again.
func (o *Operator) due(ctx context.Context, tx *sql.Tx, s *spool.Spool, m locked, at int64) error {
	err := spool.Run(ctx, tx, o.statements.SetDue(dialect.SetDueParams{Spool: s.ID(), Ref: m.ref, At: at}))
	if err != nil || !m.parked {
		return err
	}
	return note(ctx, tx, o.statements, spool.MessageSubject(m.ref.ID, m.ref.CreatedAt), resumeNote)
}

// note records an action of an operator among the failures of a subject, with attempt 0.
func note(ctx context.Context, tx *sql.Tx, statements *dialect.Statements, subject []byte, text string) error {
	return spool.Run(ctx, tx, statements.InsertFailure(dialect.Failure{Subject: subject, Error: text, Process: spool.ProcessName()}))
}
