package drain

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill"
)

// A lease ends by the database's clock. A process reckons with its monotonic clock, which stands still while its virtual
// machine is paused, and then the process believes that its leases go on. The wall clock does not stand still: it is ahead by
// the length of the pause afterwards. So a lease is over for its process when either clock says so. A wall clock that was
// set forward looks like a pause, and causes an early renewal. One that was set back changes nothing: then the monotonic clock decides.

// renewalDue says whether it is time to renew the leases, by either clock.
func (d *Drainer) renewalDue() bool {
	now := time.Now()
	return !now.Add(d.scheduler.StoodStill(d.renewedAhead, now)).Before(d.renewAt)
}

// wakeUp is for a process that has stood still: operators may have said something meanwhile, which it obeys before it renews its
// leases and so hands out messages again.
func (d *Drainer) wakeUp(ctx context.Context) error {
	still := d.scheduler.StoodStill(d.renewedAhead, time.Now())
	if still < controlInterval || d.renewAt.IsZero() {
		return nil
	}
	d.logger.Info("Postbox stood still, or the clock was set forward: it renews its leases first", watermill.LogFields{
		"spool": d.spool.Name(), "duration": still.String(),
	})
	d.control.checkedAt = time.Time{}
	return d.applySettings(ctx)
}
