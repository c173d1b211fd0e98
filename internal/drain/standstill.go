package drain

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill"
)

// A lease ends by the database's clock. A process measures with its monotonic clock, which stands
// still while its virtual machine is paused. After the pause the process would assume that its
// leases are still valid. The wall clock does not stand still: after the pause it is ahead by the
// length of the pause. So for its process a lease is over when either clock says so. A wall clock
// that was set forward looks like a pause, and causes an early renewal. A wall clock that was set
// back changes nothing: then the monotonic clock decides.

// checkStandstill finds out whether the process stood still. Operators may have changed settings
// meanwhile. The process applies them before it renews its leases and so hands out messages again.
func (d *Drainer) checkStandstill(ctx context.Context) error {
	still := d.scheduler.StoodStill(d.lease.renewedAhead, time.Now())
	if still < controlInterval || d.pace.renewAt.IsZero() {
		return nil
	}
	d.logger.Info("Postbox was suspended, or the clock was set forward: it renews its leases before it continues", watermill.LogFields{
		"spool": d.spool.Name(), "duration": still.String(),
	})
	d.control.checkedAt = time.Time{}
	return d.applySettings(ctx)
}
