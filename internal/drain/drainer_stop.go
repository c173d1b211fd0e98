package drain

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/health"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// A drainer that stops takes no more messages. It immediately hands back the lanes in which no handler runs and no
// message is left to settle. It hands back each other lane when the lane's messages are settled. Messages that were
// read and not begun are dropped, so that they hold no lane.
//
// Handlers may continue for the configured time. Then their context ends, and they have handBackTime to return. A
// handler that ignores the end of its context cannot be stopped. Run returns without it and keeps its lane, so that no
// other process handles later messages of its key before the lease has expired. The handler's later result is dropped,
// and its message is handled again.

// handBackTime is how long handlers have to return after their context has ended. It is also the minimum time for each
// of the two steps that follow: settling the messages of the handlers, and handing back the lanes. A lane that is not
// handed back waits for the end of its lease, and its messages are treated as after a crash.
const handBackTime = 2 * time.Second

// errIgnoresContext is the reason for stopping a drainer before a handler has returned.
var errIgnoresContext = errors.New("a handler or a publisher does not return when its context ends")

// stop ends a run.
func (d *Drainer) stop(live context.Context, abort context.CancelFunc) {
	d.stopping = true
	d.enter(health.Stopping)
	d.scheduler.Stop()
	d.awaitHandlers(live, abort)
	d.whileStopping(live, d.settleRest)
	d.whileStopping(live, d.leave)
}

// awaitHandlers waits for the workers. If their handlers take too long, it cancels them. Meanwhile it hands back lanes.
func (d *Drainer) awaitHandlers(live context.Context, abort context.CancelFunc) {
	ended := make(chan struct{})
	go func() {
		d.workers.Wait()
		close(ended)
	}()
	timeout := d.config.Close
	patience, end := context.WithTimeout(live, timeout+handBackTime)
	defer end()
	// The timer is independent of the loop below, which may wait for a connection that a handler holds.
	cancelling := time.AfterFunc(timeout, func() {
		d.logger.Error("Postbox cancels handlers that did not end in time", context.DeadlineExceeded, watermill.LogFields{
			"spool": d.spool.Name(), "close_timeout": timeout.String(),
		})
		abort()
	})
	defer cancelling.Stop()
	renew := time.NewTicker(d.config.Renew)
	defer renew.Stop()

	d.giveAway()
	d.whileStopping(patience, d.enroll, d.releaseLeaving)
	for {
		select {
		case <-ended:
			return
		case <-patience.Done():
			d.tellOfHandlersLeft()
			return
		case <-renew.C:
			d.whileStopping(patience, d.upkeep, d.settleFinished, d.releaseLeaving)
		case <-d.scheduler.Changed:
			d.whileStopping(patience, d.settleFinished, d.releaseLeaving)
		}
	}
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

// whileStopping runs functions until one fails. A failure loses nothing: messages that are not settled are handled
// again, and leases expire.
func (d *Drainer) whileStopping(live context.Context, works ...func(context.Context) error) {
	for _, work := range works {
		ctx, cancel := context.WithTimeout(live, min(spool.StatementTimeout, max(handBackTime, d.config.Close)))
		err := work(ctx)
		cancel()
		if err != nil {
			d.logger.Error("Postbox could not finish its work in the database while stopping", err, watermill.LogFields{"spool": d.spool.Name()})
			return
		}
	}
}
