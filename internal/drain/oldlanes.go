package drain

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// applyLayout makes the drainer use the lanes of a layout. It hands back its old lanes, each when none of its messages is in
// memory any more, and looks for lanes of the layout. How the order is kept is in spool/oldlanes.go.
func (d *Drainer) applyLayout(layout dialect.Layout) {
	before := d.layout
	if layout == before {
		return
	}
	d.layout, d.counts = layout, false
	d.spool.Adopt(layout)
	d.lanes.leaveOld(layout)
	d.tailing.forget()
	d.renewAt = time.Time{}
	fields := watermill.LogFields{"spool": d.spool.Name(), "lanes": layout.Lanes}
	switch {
	case before.Lanes != 0:
		fields["before"] = before.Lanes
		d.logger.Info("Postbox uses another number of lanes, since an operator has changed it", fields)
	case layout.Lanes != d.spool.Configured():
		fields["configured"] = d.spool.Configured()
		d.logger.Info("Postbox uses the stored number of lanes instead of the configured one", fields)
	}
}

// moveMessages moves a page of messages that are in old lanes, if the last read saw some. When no process holds an old lane any
// more, all messages are moved in the end, also those of a transaction that was open meanwhile.
func (d *Drainer) moveMessages(ctx context.Context) error {
	if !d.moving {
		return nil
	}
	d.moving = false
	moved, err := d.spool.MoveFromOldLanes(ctx, d.db, d.layout)
	if errors.Is(err, spool.ErrOldLayout) {
		d.control.checkedAt = time.Time{} // read the layout immediately
		return nil
	}
	if err != nil {
		return err
	}
	if moved > 0 {
		d.control.checkedAt = time.Time{} // the version is another one
		d.pollAt, d.notMoved = time.Time{}, notMoved{}
		return nil
	}
	d.logNotMoved(time.Now())
	return nil
}

// notMoved is about messages in old lanes that cannot be moved.
type notMoved struct {
	since time.Time
	told  bool
}

// notMovedPatience is how long the log says nothing of them. Usually they wait for running handlers.
const notMovedPatience = 10 * time.Second

// logNotMoved logs once that no messages are handed out because some cannot be moved.
func (d *Drainer) logNotMoved(now time.Time) {
	n := &d.notMoved
	if n.since.IsZero() {
		n.since = now
	}
	if n.told || now.Sub(n.since) < notMovedPatience {
		return
	}
	n.told = true
	d.logger.Error("Postbox hands out no more messages until those in old lanes are moved", errNotMoved, watermill.LogFields{"spool": d.spool.Name(), "lanes_from": d.layout.First})
}

var errNotMoved = errors.New("the number of lanes was changed, and the old lanes are still held by processes whose handlers run or which have crashed, or transactions have locked messages in them")
