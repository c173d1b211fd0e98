package spool

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill"
)

// handBackTime is the least time for each of the two steps that follow the handlers: settling what they have done, and handing back the lanes.
// A lane that is not handed back waits for the end of its lease, and its messages are treated as after a crash.
const handBackTime = 2 * time.Second

// stop ends a run.
func (d *Drainer) stop(live context.Context, abort context.CancelFunc) {
	d.stopping = true
	d.scheduler.stop()
	ended := make(chan struct{})
	go func() {
		d.workers.Wait()
		close(ended)
	}()
	deadline := time.NewTimer(d.config.Close)
	defer deadline.Stop()
	renew := time.NewTicker(d.config.Renew)
	defer renew.Stop()
	for waiting := true; waiting; {
		select {
		case <-ended:
			waiting = false
		case <-deadline.C:
			d.logger.Error("Postbox cancels handlers that did not end in time", context.DeadlineExceeded, watermill.LogFields{
				"spool": d.spool.name, "close_timeout": d.config.Close.String(),
			})
			abort()
			<-ended
			waiting = false
		case <-renew.C:
			d.whileStopping(live, d.upkeep)
		case <-d.scheduler.changed:
			d.whileStopping(live, d.settleFinished)
		}
	}
	d.whileStopping(live, d.settleRest)
	d.whileStopping(live, d.leave)
}

// whileStopping runs one piece of work. Its failure loses nothing: what is not settled is handled again, and
// leases end by themselves.
func (d *Drainer) whileStopping(live context.Context, work func(context.Context) error) {
	ctx, cancel := context.WithTimeout(live, min(statementTimeout, max(handBackTime, d.config.Close)))
	defer cancel()
	if err := work(ctx); err != nil {
		d.logger.Error("Postbox could not finish while stopping", err, watermill.LogFields{"spool": d.spool.name})
	}
}
