package drain

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/health"
	"github.com/postbox-go/watermill-postbox/internal/schedule"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// A drainer that stops takes no more messages. It immediately hands back the lanes in which no
// handler runs and no message is left to settle. It hands back each other lane when the lane's
// messages are settled. Messages that were read and not begun are dropped, so that they hold no
// lane.
//
// A step that is under way has handBackTime to end: it may wait for a lock on a whole table, or for
// a server that does not answer. What it was about to settle is settled again.
//
// Handlers may continue for the configured time. Then their context ends, and they have
// handBackTime to return. A handler that ignores the end of its context cannot be stopped. Run
// returns without it and keeps its lane, so that no other process handles later messages of its key
// before the lease has expired. The handler's later result is dropped, and its message is handled
// again.

// handBackTime is how long handlers have to return after their context has ended, and a step that
// is under way when the stop begins. It is also the minimum time for each of the two steps that
// follow: settling the messages of the handlers, and handing back the lanes. A lane that is not
// handed back waits for the end of its lease, and its messages are treated as after a crash.
const handBackTime = 2 * time.Second

// lastTry is how long before the end of its time a stop tries for the last time to store outcomes.
const lastTry = 100 * time.Millisecond

// If the row of a message is locked, if the database refuses to settle it, or if it is unavailable,
// the drainer keeps the message's lane, renews the lease, and tries again until the time for the
// handlers is over. If its lane were handed back, or the outcome forgotten, the next holder would
// handle the message a second time. Locks usually end soon: a transaction that replaces a message
// has one until it commits. A restart or a failover may also end in time. If another process has
// taken the lane meanwhile, the fencing token keeps this one from settling its messages.

// errIgnoresContext is the reason for stopping a drainer before a handler has returned.
var errIgnoresContext = errors.New("a handler or a publisher does not return when its context ends")

// errUnrecorded is the reason why messages that are done are handled again after a stop.
var errUnrecorded = errors.New("their rows are locked, or the database does not store their outcomes")

// stop ends a run.
func (d *Drainer) stop(live context.Context, abort context.CancelFunc) {
	began := time.Now()
	d.lease.stopping = true
	d.enter(health.Stopping)
	d.scheduler.Stop()
	d.awaitHandlers(live, abort)
	d.recordOutcomes(live, began.Add(d.config.Close))
	d.whileStopping(live, d.handBackAll)
}

// awaitHandlers waits for the workers. If their handlers take too long, it cancels them. Meanwhile
// it hands back lanes.
func (d *Drainer) awaitHandlers(live context.Context, abort context.CancelFunc) {
	ended := make(chan struct{})
	go func() {
		d.workers.running.Wait()
		close(ended)
	}()
	timeout := d.config.Close
	patience, end := context.WithTimeout(live, timeout+handBackTime)
	defer end()
	// The timer is independent of the loop below, which may wait for a connection that a handler
	// holds.
	cancelling := time.AfterFunc(timeout, func() {
		d.logger.Error("Postbox cancels handlers that did not end in time", context.DeadlineExceeded, watermill.LogFields{
			"spool": d.spool.Name(), "close_timeout": timeout.String(),
		})
		abort()
	})
	defer cancelling.Stop()
	renew := time.NewTicker(d.config.Renew)
	defer renew.Stop()

	d.lease.giveAway()
	d.whileStopping(patience, d.lease.enroll, d.lease.releaseLeaving, d.limits.takeFromLimits)
	for {
		select {
		case <-ended:
			return
		case <-patience.Done():
			d.tellOfHandlersLeft()
			return
		case <-renew.C:
			d.whileStopping(patience, d.upkeep, d.settle.settleFinished, d.lease.releaseLeaving, d.limits.takeFromLimits)
		case <-d.scheduler.Changed:
			d.whileStopping(patience, d.settle.settleFinished, d.lease.releaseLeaving, d.limits.takeFromLimits)
		}
	}
}

// recordOutcomes settles all messages. It tries again while some have an outcome that is not
// stored, until this time or for handBackTime, whichever is longer. Meanwhile it hands back the
// other lanes.
func (d *Drainer) recordOutcomes(live context.Context, until time.Time) {
	now := time.Now()
	if until = later(until, now.Add(handBackTime)); until.After(now.Add(spool.StatementTimeout)) {
		until = now.Add(spool.StatementTimeout)
	}
	inTime, end := context.WithDeadline(live, until)
	defer end()
	goesOn := d.tryToStop(live, d.settle.settleRemaining, d.handBackOthers)
	for goesOn && unrecorded(d.unsettledYet()) > 0 {
		pause := beforeTry(time.Until(until), d.config.Renew)
		if pause <= 0 {
			break
		}
		<-time.After(pause)
		goesOn = d.tryToStop(inTime, d.renewInTime, d.settle.settleRemaining, d.handBackOthers)
	}
	if n := unrecorded(append(d.unsettledYet(), d.scheduler.TakeFinished()...)); n > 0 {
		d.logger.Error("Postbox stops although it could not record the outcomes of some messages: they are handled again",
			errUnrecorded, watermill.LogFields{"spool": d.spool.Name(), "messages": n})
	}
}

// beforeTry returns the pause before the next try, or nothing if the last one has been made. So
// much time is left.
func beforeTry(left, renew time.Duration) time.Duration {
	return min(lockedInterval, renew, left-lastTry)
}

// handBackAll hands back all lanes, except those in which a handler is still running. The message
// of such a handler is treated as after a crash, once the lease has expired.
func (d *Drainer) handBackAll(ctx context.Context) error {
	if err := d.lease.enroll(ctx); err != nil {
		return err
	}
	running := d.scheduler.RunningLanes()
	var lanes []int
	for number := range d.lanes.held {
		if !running[number] {
			lanes = append(lanes, number)
		}
	}
	if err := d.lease.release(ctx, lanes); err != nil {
		return err
	}
	if err := d.lease.enroll(ctx); err != nil { // it leaves, if no lane is left
		return err
	}
	return d.crashGuard.excuse(ctx)
}

// handBackOthers hands back the lanes whose messages are settled.
func (d *Drainer) handBackOthers(ctx context.Context) error {
	d.lease.giveAway()
	return d.lease.releaseLeaving(ctx)
}

// renewInTime renews the leases if that is due.
func (d *Drainer) renewInTime(ctx context.Context) error {
	if !d.lease.renewalDue() {
		return nil
	}
	return d.upkeep(ctx)
}

// unsettledYet returns the messages that this drainer has tried to settle, or is about to.
func (d *Drainer) unsettledYet() []*schedule.Entry {
	return slices.Concat(d.settle.unsettled, d.settle.part.underWay, d.settle.done, d.settle.setbacks.resting)
}

// unrecorded returns how many of these messages have an outcome that must be stored.
func unrecorded(entries []*schedule.Entry) (n int) {
	for _, e := range entries {
		if mustBeStored(e.Outcome.Verdict) {
			n++
		}
	}
	return n
}

// mustBeStored reports whether an outcome must be stored. After any other one, the message is
// handled again anyway.
func mustBeStored(verdict spool.Verdict) bool {
	return verdict == spool.Done || verdict == spool.Retry || verdict == spool.Dead
}

// tellOfHandlersLeft logs that the stop continues although handlers are still running.
func (d *Drainer) tellOfHandlersLeft() {
	lanes := d.scheduler.RunningLanes()
	if len(lanes) == 0 { // the last handler has just returned
		return
	}
	d.logger.Error("Postbox stops although some handlers have not returned: their lanes wait until the leases run out, and their messages are handled again",
		errIgnoresContext, watermill.LogFields{
			"spool": d.spool.Name(), "in_flight": d.scheduler.InFlight(), "lanes": slices.Sorted(maps.Keys(lanes)),
		})
}

// whileStopping runs functions until one fails. A failure loses nothing: messages that are not
// settled are handled again, and leases expire.
func (d *Drainer) whileStopping(live context.Context, works ...func(context.Context) error) {
	if err := d.inTurn(live, works); err != nil {
		d.notStopped(err)
	}
}

// tryToStop runs functions until one fails, and reports whether they may be tried again.
func (d *Drainer) tryToStop(live context.Context, works ...func(context.Context) error) bool {
	err := d.inTurn(live, works)
	switch {
	case err == nil:
		d.trouble = trouble{} // a stop does not show that reads work again
	case d.forGood(err) || isClosed(live, d.db):
		d.notStopped(err)
		return false
	default:
		d.stepFailed(err)
	}
	return true
}

func (d *Drainer) notStopped(err error) {
	d.logger.Error("Postbox could not finish its work in the database while stopping", err, watermill.LogFields{"spool": d.spool.Name()})
}

// inTurn runs functions until one fails, and gives each of them the time that a stop has for a step
// in the database.
func (d *Drainer) inTurn(live context.Context, works []func(context.Context) error) error {
	for _, work := range works {
		ctx, cancel := context.WithTimeout(live, min(spool.StatementTimeout, max(handBackTime, d.config.Close)))
		err := work(ctx)
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

// isClosed reports whether the user has closed the pool of connections, after which no statement
// works. A pool says so before it looks whether the context has ended, and its error has no code
// and no type.
func isClosed(ctx context.Context, db *sql.DB) bool {
	ended, end := context.WithCancel(ctx)
	end()
	return !errors.Is(db.PingContext(ended), context.Canceled)
}
