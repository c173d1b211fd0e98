package drain

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// trouble is a series of steps that each failed: because of a conflict, another error of the
// server, or an unavailable database. Until its pause is over, the drainer only settles finished
// messages and renews its leases in time. So the trouble ends when the failed work has succeeded,
// and not when other work has.
type trouble struct {
	steps int
	pause time.Duration
	until time.Time // when the pause is over
	// renewal is set if the leases were due when a step failed, so their renewal may have failed.
	// Then the next renewal waits for the end of the pause, too.
	renewal bool
	toldAt  time.Time // when it was logged last
	// end is the log line for the end of the trouble; empty if its beginning was not logged.
	end string
}

// conflictsUntilLogged is the number of steps in a row with a conflict after which the trouble is
// logged. Any other error is logged at the first step.
const conflictsUntilLogged = 10

// tellAgain is how often a trouble that lasts is logged again.
const tellAgain = 10 * time.Minute

// inPause reports whether the pause is not over.
func (t *trouble) inPause(now time.Time) bool { return now.Before(t.until) }

// mayRenew reports whether leases that are due may be renewed. If a renewal has failed, the next
// one waits for the end of the pause.
func (d *Drainer) mayRenew() bool { return !d.trouble.renewal || !d.trouble.inPause(time.Now()) }

// stepFailed starts a pause after a step that failed. Mostly the next step works. If the renewal of
// the leases failed, the pause is short enough for several tries before they expire.
func (d *Drainer) stepFailed(err error) {
	d.failed(err)
	if d.config.Circuits != nil {
		d.config.Circuits().Unread()
	}
	t := &d.trouble
	t.steps++
	most := d.config.PollMax
	if t.renewal = d.lease.renewalDue(); t.renewal {
		most = min(most, d.config.Renew)
	}
	t.pause = min(max(2*t.pause, d.config.PollMin), most)
	t.until = time.Now().Add(t.pause)
	d.pace.at = t.until
	fields := watermill.LogFields{"spool": d.spool.Name(), "in_a_row": t.steps}
	told := t.end != "" && time.Since(t.toldAt) < tellAgain
	if told || d.isConflict(err) && t.steps < conflictsUntilLogged {
		d.logger.Debug("Postbox is blocked: "+err.Error(), fields)
		return
	}
	t.toldAt = time.Now()
	var begin string
	begin, t.end = d.reason(err)
	d.logger.Error(begin+" and goes on trying", err, fields)
}

// dropUnfit drops the connections of the pool after an error of one that cannot write: it answers,
// so the pool would keep it.
func (d *Drainer) dropUnfit(ctx context.Context, err error) {
	if dialect.SessionUnfit(err) {
		dialect.DiscardIdle(ctx, d.db)
	}
}

// reason returns the log line that explains why a step failed, and the line for the end of the
// trouble.
func (d *Drainer) reason(err error) (begin, end string) {
	const over, reached = "Postbox works again", "Postbox reaches its database again"
	kind := d.spool.Statements.Kind
	switch of := kind.Classify(err); {
	case errors.Is(err, dialect.ErrUnfit):
		return "Postbox cannot use this database session, so it has changed nothing,", over
	case dialect.FromPooler(err) && of == dialect.Unavailable:
		return "Postbox cannot reach its database (" + dialect.PoolerHint + ")", reached
	case dialect.FromPooler(err):
		return "Postbox's statements fail (" + dialect.PoolerHint + ")", over
	case kind.ReadOnly(err):
		return "Postbox cannot write to its database, which is read-only, as an old primary is after a failover,", over
	case d.isConflict(err):
		return "Postbox is blocked by conflicts with other transactions", over
	case of == dialect.Interrupted:
		return fmt.Sprintf("Postbox could not finish a statement: it was ended by statement_timeout (max_statement_time on MariaDB) "+
			"of this role or database, by an operator, or by Postbox itself, after %s or because it stops,", spool.StatementTimeout), over
	case of != dialect.Unavailable && dialect.Coded(err):
		return "Postbox is blocked by an error of its database", over
	default:
		return "Postbox cannot reach its database", reached
	}
}

// pauseUntil returns when a drainer must work again during the pause.
func (d *Drainer) pauseUntil() time.Time {
	if !d.trouble.renewal && d.pace.renewAt.Before(d.trouble.until) {
		return d.pace.renewAt
	}
	return d.trouble.until
}

// stepSucceeded ends the trouble.
func (d *Drainer) stepSucceeded() {
	if t := d.trouble; t.end != "" {
		d.pace.slowStart.Begin()
		d.logger.Info(t.end, watermill.LogFields{"spool": d.spool.Name(), "in_a_row": t.steps})
	}
	d.trouble = trouble{}
}
