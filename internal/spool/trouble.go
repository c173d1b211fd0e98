package spool

import (
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// databaseAway logs the first error of a row of them and slows down.
func (d *Drainer) databaseAway(err error) {
	d.pollAt = time.Now().Add(d.config.PollMax)
	fields := watermill.LogFields{"spool": d.spool.name}
	if d.away {
		d.logger.Debug("Postbox cannot reach its database: "+err.Error(), fields)
		return
	}
	d.away = true
	d.logger.Error(d.reason(err)+" and goes on trying", err, fields)
}

// reason is what helps to find out why a step failed.
func (d *Drainer) reason(err error) string {
	switch kind := d.spool.statements.Kind; {
	case kind.ReadOnly(err):
		return "Postbox cannot write to its database, which is read-only, as an old primary is after a failover,"
	case kind.Classify(err) == dialect.Interrupted:
		return fmt.Sprintf("Postbox could not finish a statement, since the server ended it: statement_timeout (max_statement_time on MariaDB) "+
			"of this role or database, an operator who cancelled it, or more than %s", statementTimeout)
	default:
		return "Postbox cannot reach its database"
	}
}

// hindrance is a row of steps that each ended with a conflict. Until its pause is over, the drainer settles what has finished and
// renews its leases in time, and does nothing else.
type hindrance struct {
	steps int
	pause time.Duration
	until time.Time // when the pause is over
	// renewal: the leases are due and could not be renewed. That waits for the end of the pause, too.
	renewal bool
}

// hinderedTold is after how many such steps in a row that is said.
const hinderedTold = 10

// rests says whether a pause is under way.
func (h *hindrance) rests(now time.Time) bool { return now.Before(h.until) }

// hindered slows down after a step that conflicted with other transactions. Mostly the next one works. Where the renewal of the leases
// conflicted, the pause is short enough that it is tried several times before they end.
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
	if h.steps == hinderedTold {
		d.logger.Error("Postbox is hindered by other transactions and goes on trying", err, watermill.LogFields{"spool": d.spool.name, "in_a_row": h.steps})
	}
}

// hinderedUntil is when a drainer that is hindered has something to do.
func (d *Drainer) hinderedUntil() time.Time {
	if !d.hindrance.renewal && d.renewAt.Before(d.hindrance.until) {
		return d.renewAt
	}
	return d.hindrance.until
}

// unhindered ends that.
func (d *Drainer) unhindered() {
	if d.hindrance.steps >= hinderedTold {
		d.logger.Info("Postbox is not hindered any more", watermill.LogFields{"spool": d.spool.name, "in_a_row": d.hindrance.steps})
	}
	d.hindrance = hindrance{}
}
