package drain

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/schedule"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

func byID(a, b *schedule.Entry) int { return cmp.Compare(a.Message.Ref.ID, b.Message.Ref.ID) }

// pollAgain makes the drainer read all lanes from the beginning and renew its leases. It is called when a message could
// not be settled: its lane was lost, or the answer to an earlier try was lost. The state of such messages must be known
// before later messages of their keys are handed out.
func (d *Drainer) pollAgain() {
	d.lanes.rewind()
	d.renewAt = time.Time{}
}

// refused marks a message that could not be settled and that another process may have by now.
func (d *Drainer) refused(e *schedule.Entry) {
	e.Refused = true
	d.pollAgain()
}

// execIsolated executes a statement that must not wait for unrelated rows, see [dialect.Statements.Isolate].
func (d *Drainer) execIsolated(ctx context.Context, query dialect.Query) error {
	if d.spool.Statements.Isolate {
		return spool.InTx(ctx, d.db, d.spool.Statements, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, query.Text, query.Args...)
			return err
		})
	}
	_, err := d.prepared.Exec(ctx, d.db, query)
	return err
}

// settleFailures writes failures one by one, because they are rare.
func (d *Drainer) settleFailures(ctx context.Context, tx *sql.Tx, entries []*schedule.Entry) error {
	kept := spool.ClosedKeys{} // whose later messages must not be written before a kept message
	for _, e := range entries {
		var err error
		e.Refused, e.Kept = false, kept.Has(e.Message)
		if e.Kept {
			continue
		}
		switch d.next(e) {
		case wait:
			err = d.retry(ctx, tx, e, d.delay(e).Microseconds(), 0, e.Message.Started)
		case tryAgain:
			err = d.retry(ctx, tx, e, d.delay(e).Microseconds(), 1, e.Message.Started)
		case park:
			err = d.park(ctx, tx, e)
		case bury:
			err = d.bury(ctx, tx, e)
		}
		if err != nil {
			return err
		}
		if e.Kept {
			kept.Close(e.Message)
		}
	}
	return nil
}

// unchanged finds out why a statement did not change the row of a message. Another process may have the message by now,
// or the database may keep the row without an error, as a trigger of the user can. In the second case the outcome is
// written later, unless the message is to run again anyway.
func (d *Drainer) unchanged(ctx context.Context, tx *sql.Tx, e *schedule.Entry, least, most int) error {
	m := e.Message
	if e.Outcome.Verdict != spool.Again {
		found, err := spool.SelectIDs(ctx, tx, d.spool.Statements.StandsToRetry(dialect.AsRead{
			Spool: d.id, Ref: m.Ref, Attempts: m.Attempts, LeastStarts: least, MostStarts: most,
		}))
		if err != nil {
			return fmt.Errorf("look for message %d: %w", m.Ref.ID, err)
		}
		if e.Kept = len(found) > 0; e.Kept {
			return nil
		}
	}
	d.refused(e)
	return d.takeBackStart(ctx, tx, m)
}

// next is the next step for a message that failed.
type next int

const (
	tryAgain next = iota
	wait          // no attempt is counted
	park
	bury
)

// next applies the retry profile, and at its end the policy for the head of a key.
func (d *Drainer) next(e *schedule.Entry) next {
	if e.Outcome.Verdict == spool.Wait || e.Outcome.Verdict == spool.Again {
		return wait
	}
	over := e.Outcome.Verdict == spool.Dead || e.Outcome.Final
	if !over && !d.config.Retry.Exhausted(e.Message.Attempts+e.Message.Starts+1) {
		return tryAgain
	}
	switch {
	case d.config.Head == HeadPark:
		return park
	case d.config.Head == HeadBlock && !over:
		return tryAgain
	default:
		return bury
	}
}

func (d *Drainer) delay(e *schedule.Entry) time.Duration {
	if e.Outcome.After > 0 {
		return e.Outcome.After
	}
	return d.config.Retry.Delay(e.Message.Attempts + 1)
}

// retry makes a message wait for the delay in microseconds, and adds the attempts, if it still has the least number of
// starts. If no attempt is added, the reason is recorded when the message begins to wait, so that an operator sees it.
// It is not recorded again, because an outage may last for thousands of probes.
func (d *Drainer) retry(ctx context.Context, tx *sql.Tx, e *schedule.Entry, delay int64, attempts, least int) error {
	m, statements := e.Message, d.spool.Statements
	params := dialect.RetryParams{
		AsRead: dialect.AsRead{Spool: d.id, Ref: m.Ref, Attempts: m.Attempts, LeastStarts: least, MostStarts: m.AllStarts()},
		Delay:  delay, AddAttempts: attempts, TakeBackStarts: m.Started,
	}
	var changed int64
	var err error
	if m.Ref.State == dialect.StateReady && statements.MovesToWaiting() {
		changed, err = spool.Moved(ctx, tx, statements.MoveToWaiting(params))
	} else {
		changed, err = spool.Affected(spool.Directly(ctx, tx, statements.Retry(params)))
	}
	if err != nil {
		return err
	}
	if changed == 0 {
		return d.unchanged(ctx, tx, e, least, m.AllStarts())
	}
	if attempts == 0 {
		return d.noteWait(ctx, tx, e)
	}
	return d.recordFailure(ctx, tx, e)
}

// waitNote begins the failure entry, with attempt 0, of a message that waits without a counted attempt.
const waitNote = "the message waits, and no attempt is counted"

func (d *Drainer) noteWait(ctx context.Context, tx *sql.Tx, e *schedule.Entry) error {
	if e.Message.Ref.State == dialect.StateRetrying || e.Outcome.Err == nil || e.Outcome.Verdict == spool.Again { // setback.go records these
		return nil
	}
	return spool.Run(ctx, tx, d.spool.Statements.InsertFailure(dialect.Failure{
		Subject: e.Message.Subject(), Error: spool.ErrorText(fmt.Errorf("%s: %w", waitNote, e.Outcome.Err)), Process: d.config.Process,
	}))
}

// park makes a message wait in its place for an operator.
func (d *Drainer) park(ctx context.Context, tx *sql.Tx, e *schedule.Entry) error {
	err := d.retry(ctx, tx, e, dialect.ParkDelay, 1, e.Message.AllStarts())
	if err != nil || e.Kept || e.Refused {
		return err
	}
	d.logEnd(ctx, e, "Postbox parked a message: it waits for an operator, and so do later messages with its ordering key")
	return nil
}

// logEnd says after the commit that a message is not tried again by itself.
func (d *Drainer) logEnd(ctx context.Context, e *schedule.Entry, text string) {
	postbox.AfterCommit(ctx, func() {
		d.logger.Error(text, e.Outcome.Err, watermill.LogFields{
			"spool": d.spool.Name(), "topic": e.Message.Topic, "message_uuid": e.Message.MessageID, "attempts": e.Message.Attempts + 1,
		})
	})
}

func (d *Drainer) bury(ctx context.Context, tx *sql.Tx, e *schedule.Entry) error {
	m := e.Message
	buried, err := spool.Affected(spool.Directly(ctx, tx, d.spool.Statements.BuryMessage(dialect.BuryParams{
		Spool: d.id, Ref: m.Ref, Burial: dialect.Burial{Subject: m.Subject(), Error: spool.ErrorText(e.Outcome.Err), Cause: causeOf(e)}, LeastStarts: m.AllStarts(),
	})))
	if err != nil {
		return err
	}
	if buried == 0 {
		return d.unchanged(ctx, tx, e, m.AllStarts(), math.MaxInt16)
	}
	if err := d.recordFailure(ctx, tx, e); err != nil {
		return err
	}
	if d.config.Buried != nil {
		if !m.Loaded { // a large payload, see unload
			if _, err := d.loadPayload(ctx, tx, m); err != nil {
				return err
			}
			defer m.Unload() // many such messages may wait for another try
		}
		if err := d.callBuried(ctx, e); err != nil {
			return hookError{fmt.Errorf("report that message %d is dead: %w", m.Ref.ID, err)}
		}
	}
	query := d.spool.Statements.Remove(d.id, []dialect.Ref{m.Ref})
	removed, err := spool.Affected(tx.ExecContext(ctx, query.Text, query.Args...))
	if d.config.Buried != nil && errors.Is(err, sql.ErrTxDone) && ctx.Err() == nil {
		err = hookError{fmt.Errorf("report that message %d is dead: the hook has ended the transaction: %w", m.Ref.ID, err)}
	}
	if err == nil && removed == 0 {
		err = spool.ErrLost
	}
	if err != nil {
		return err
	}
	d.logEnd(ctx, e, "Postbox moved a message to the dead letters")
	return nil
}

// causeOf returns why a message becomes a dead letter.
func causeOf(e *schedule.Entry) dialect.Cause {
	switch {
	case e.Message.Broken != nil:
		return dialect.CauseUnreadable
	case e.Message.Doomed != nil:
		return dialect.CauseCrash
	case e.Outcome.Verdict == spool.Dead:
		return dialect.CausePermanent
	default:
		return dialect.CauseAttempts
	}
}

// callBuried gives Buried at most Renew, which is less time than the settlement has. A settlement with a refused
// message is tried in halves until that message is alone, and the leases must be renewed meanwhile.
func (d *Drainer) callBuried(ctx context.Context, e *schedule.Entry) error {
	ctx, cancel := context.WithTimeout(ctx, d.config.Renew)
	defer cancel()
	return d.config.Buried(ctx, e.Message, e.Message.Attempts+1, e.Outcome.Err)
}

// hookError means that a message could not be buried because Buried failed. It concerns this message alone, whatever
// the error looks like. The cause may be anywhere, such as a broker that is unavailable. If the drainer's own database
// is unavailable, the next statement reports that.
type hookError struct{ error }

// Unwrap returns the wrapped error.
func (e hookError) Unwrap() error { return e.error }

func (d *Drainer) recordFailure(ctx context.Context, tx *sql.Tx, e *schedule.Entry) error {
	return spool.Run(ctx, tx, d.spool.Statements.InsertFailure(dialect.Failure{
		Subject: e.Message.Subject(), Attempt: e.Message.Attempts + 1, Error: spool.ErrorText(e.Outcome.Err), Process: d.config.Process,
	}))
}
