package drain

import (
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// hindrance is a row of steps that each failed: in a conflict with others, with another error of the server, or because the database
// is away. Until its pause is over, the drainer settles what has finished and renews its leases in time, and does nothing else. So it
// ends when what failed has been tried again with success, and not when something else has.
type hindrance struct {
	steps int
	pause time.Duration
	until time.Time // when the pause is over
	// renewal: the leases were due when a step failed, so they may be what could not be renewed. That waits for the end of the pause, too.
	renewal bool
	// end is what the log says when it is over; empty while nothing has been said of it.
	end string
}

// hinderedTold is after how many steps in a row that end with a conflict that is said. Of any other error the first is.
const hinderedTold = 10

// rests says whether a pause is under way.
func (h *hindrance) rests(now time.Time) bool { return now.Before(h.until) }

// mayRenew says whether the leases may be renewed if they are due. Where they could not be, that waits for the end of the pause.
func (d *Drainer) mayRenew() bool { return !d.hindrance.renewal || !d.hindrance.rests(time.Now()) }

// hindered slows down after a step that failed. Mostly the next one works. Where the renewal of the leases
// failed, the pause is short enough that it is tried several times before they end.
func (d *Drainer) hindered(err error) {
	h := &d.hindrance
	h.steps++
	most := d.config.PollMax
	if h.renewal = d.renewalDue(); h.renewal {
		most = min(most, d.config.Renew)
	}
	h.pause = min(max(2*h.pause, d.config.PollMin), most)
	h.until = time.Now().Add(h.pause)
	d.pollAt = h.until
	fields := watermill.LogFields{"spool": d.spool.Name(), "in_a_row": h.steps}
	if h.end != "" || d.isConflict(err) && h.steps < hinderedTold {
		d.logger.Debug("Postbox is hindered: "+err.Error(), fields)
		return
	}
	var begin string
	begin, h.end = d.reason(err)
	d.logger.Error(begin+" and goes on trying", err, fields)
}

// reason is what helps to find out why a step failed, and what is said when that is over.
func (d *Drainer) reason(err error) (begin, end string) {
	const over, reached = "Postbox is not hindered any more", "Postbox reaches its database again"
	kind := d.spool.Statements.Kind
	switch of := kind.Classify(err); {
	case errors.Is(err, dialect.ErrUnfit):
		return "Postbox has changed nothing after a read in a session that it cannot use,", over
	case dialect.FromPooler(err) && of == dialect.Unavailable:
		return "Postbox cannot reach its database (" + dialect.PoolerHint + ")", reached
	case dialect.FromPooler(err):
		return "Postbox's statements fail (" + dialect.PoolerHint + ")", over
	case kind.ReadOnly(err):
		return "Postbox cannot write to its database, which is read-only, as an old primary is after a failover,", over
	case d.isConflict(err):
		return "Postbox is hindered by other transactions", over
	case of == dialect.Interrupted:
		return fmt.Sprintf("Postbox could not finish a statement, since the server ended it: statement_timeout (max_statement_time on MariaDB) "+
			"of this role or database, an operator who cancelled it, or more than %s", spool.StatementTimeout), over
	case of != dialect.Unavailable && dialect.Coded(err):
		return "Postbox is hindered by an error of its database", over
	default:
		return "Postbox cannot reach its database", reached
	}
}

// hinderedUntil is when a drainer that rests has something to do.
func (d *Drainer) hinderedUntil() time.Time {
	if !d.hindrance.renewal && d.renewAt.Before(d.hindrance.until) {
		return d.renewAt
	}
	return d.hindrance.until
}

// unhindered ends that.
func (d *Drainer) unhindered() {
	if h := d.hindrance; h.end != "" {
		d.slowStart.Begin()
		d.logger.Info(h.end, watermill.LogFields{"spool": d.spool.Name(), "in_a_row": h.steps})
	}
	d.hindrance = hindrance{}
}
