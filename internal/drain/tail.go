package drain

import (
	"slices"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/tail"
)

// The log of the database says when to read, and the rows say what: see docs/log-tailing.md. It is
// one more reason to poll, beside the wake-ups of this process and LISTEN, so the order of messages
// does not depend on it.
//
// The log is ahead of what sessions see. So it tells transactions, and each of them is a reason to
// poll until the snapshot of a read of its lane sees it. The process that reads the log wakes
// those of other processes, as publishers do.
type tailing struct {
	feed   *tail.Feed // nil: no log is read
	lanes  bool       // the next read is of lanes that the log has named
	pause  time.Duration
	others *spool.Announcer
}

// invisibleMin and invisibleMax bound the pause between two reads for a transaction that is in the
// log and not yet visible. Mostly it becomes visible within microseconds. If a synchronous standby
// is away, it takes long.
const (
	invisibleMin = 100 * time.Microsecond
	invisibleMax = 50 * time.Millisecond
)

// startTailing makes the drainer hear of what a log tells, if there is a feed.
func (d *Drainer) startTailing() {
	d.tailing = tailing{feed: d.configured.Feed, others: spool.NewAnnouncer(d.spool, d.db, d.logger)}
}

// followed reports whether a log tells each change, so that polls find nothing that it does not.
func (d *Drainer) followed(now time.Time) bool {
	return d.tailing.feed != nil && d.tailing.feed.Tells(now)
}

// takeTold makes the next poll come soon if the log has told a transaction that no read has seen. A
// read of the lanes that it names is a fraction of a poll of all.
func (d *Drainer) takeTold() {
	t := &d.tailing
	if t.feed == nil {
		return
	}
	told, messages := t.feed.News()
	d.configured.Meter.LogTaken(messages)
	if len(told) == 0 {
		return
	}
	if time.Now().Before(d.pace.rested) || slices.ContainsFunc(told, func(lane int) bool { return d.lanes.held[lane] == nil }) {
		d.wakeSoon()
		return
	}
	for _, lane := range told {
		d.lanes.held[lane].hasMore = true
	}
	t.lanes = true
}

// observeRead notes what a read has seen. If a change is left that it has not seen, a poll follows.
func (d *Drainer) observeRead(params dialect.FetchParams, found *page) {
	t := &d.tailing
	if t.feed == nil || found.seen == nil || params.PerLane == 0 || found.version != d.control.version {
		return
	}
	lanes := make([]int, len(params.Cursors))
	for i, c := range params.Cursors {
		lanes[i] = c.Lane
	}
	first, left := t.feed.Read(found.seen, lanes, len(lanes) == len(d.lanes.numbers()))
	if first > 0 && d.members > 1 {
		t.others.Notify()
	}
	if left == 0 {
		t.pause = 0
		return
	}
	t.pause = min(max(2*t.pause, invisibleMin), invisibleMax)
	d.pace.by(later(d.pace.rested, time.Now().Add(t.pause)))
}
