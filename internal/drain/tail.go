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
	*core
	feed   *tail.Feed // nil: no log is read
	named  bool       // the next read is of lanes that the log has named
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

// followed reports whether a log tells each change, so that polls find nothing that it does not.
func (t *tailing) followed(now time.Time) bool {
	return t.feed != nil && t.feed.Tells(now)
}

// takeTold makes the next read one of the lanes in which the log has told a transaction that no
// read has seen, which is a fraction of a poll of all. It reports true if it takes a poll.
func (t *tailing) takeTold() (poll bool) {
	if t.feed == nil {
		return false
	}
	told, messages := t.feed.News()
	t.configured.Meter.LogTaken(messages)
	if len(told) == 0 {
		return false
	}
	if time.Now().Before(t.pace.notBefore) || slices.ContainsFunc(told, func(lane int) bool { return t.lanes.held[lane] == nil }) {
		return true
	}
	for _, lane := range told {
		t.lanes.held[lane].hasMore = true
	}
	t.named = true
	return false
}

// observeRead notes what a read has seen. If a change is left that it has not seen, a poll follows.
func (t *tailing) observeRead(params dialect.FetchParams, found *page, alone bool) {
	if t.feed == nil || found.seen == nil || params.PerLane == 0 || found.version != t.control.version {
		return
	}
	lanes := make([]int, len(params.Cursors))
	for i, c := range params.Cursors {
		lanes[i] = c.Lane
	}
	first, left := t.feed.Read(found.seen, lanes, len(lanes) == len(t.lanes.numbers()))
	if first > 0 && !alone {
		t.others.Notify()
	}
	if left == 0 {
		t.pause = 0
		return
	}
	t.pause = min(max(2*t.pause, invisibleMin), invisibleMax)
	t.pace.by(later(t.pace.notBefore, time.Now().Add(t.pause)))
}
