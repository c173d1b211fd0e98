package drain

import (
	"slices"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// ticks knows the scheduled times of batches. A message belongs to the first one after it was
// stored. Messages of a time that has not come are not held in memory, and hold up no others: until
// it comes, a lane ends before the first of them. Within a lane, ids follow the order in which
// messages were stored, except for messages that are stored at the same moment. A message with a
// delay, or that is tried again, has a time of its own, and a read returns it only then.
//
// All due messages go out in as few batches as possible. So the drainer tells the scheduler when it
// has read them all. A transaction may have stored a message before the time and commit after it.
// So the drainer has read all only after the watermark has passed the ids that were given by the
// time, and while no late transaction is watched. It waits for that no longer than openAtTick. The
// messages of a transaction that is open for longer come in a later batch.
type ticks struct {
	next  time.Time // by the database's clock
	at    time.Time // the same by this process's clock
	began time.Time // when the latest one came
	mark  int       // number of marks that had been set by then
	whole bool      // all that is due has been read
}

const (
	openAtTick = time.Second
	// tickPoll is the longest pause between two polls while not all that is due has been read.
	tickPoll = 20 * time.Millisecond
)

// ticking reports whether batches have scheduled times.
func (c *core) ticking() bool { return c.config.Gather != nil && c.config.Gather.OnlyDue }

// tick opens the lanes again if a scheduled time has come before a read. It reports true for a read
// that ended too early.
func (r *reader) tick(found *page) bool {
	if !r.ticking() {
		return false
	}
	t, now := &r.ticks, time.Now()
	next := r.config.Gather.Due(found.now)
	come := !next.Equal(t.next) // also if the clock went back across a time, which comes once more then
	if come {
		t.next, t.began, t.mark, t.whole = next, now, r.watermark.marks, false
	}
	t.at = now.Add(t.next.Sub(found.now))
	again := false
	for _, l := range r.lanes.held {
		if come && l.endsBefore > 0 {
			l.endsBefore, again = 0, true
		}
	}
	return again
}

// trimLater removes the messages of later scheduled times from a page.
func (r *reader) trimLater(found *page) {
	if !r.ticking() {
		return
	}
	for _, m := range found.messages {
		l := r.lanes.held[m.Ref.Lane]
		if m.Ref.State == dialect.StateReady && (l.endsBefore == 0 || m.Ref.ID < l.endsBefore) && r.config.Gather.Due(m.CreatedAt).After(found.now) {
			l.endsBefore = m.Ref.ID
		}
	}
	found.messages = slices.DeleteFunc(found.messages, func(m *spool.Message) bool {
		l := r.lanes.held[m.Ref.Lane]
		return m.Ref.State == dialect.StateReady && l.endsBefore > 0 && m.Ref.ID >= l.endsBefore
	})
}

// before returns the id up to which a lane is read, given a bound or 0 for its end.
func (l *lane) before(upTo int64) int64 {
	if l.endsBefore > 1 && (upTo == 0 || upTo >= l.endsBefore) {
		return l.endsBefore - 1
	}
	return upTo
}

// untilTick returns when to poll: at the given time, or earlier if a scheduled time comes before
// it, or if due messages must still be read.
func (r *reader) untilTick(at, now time.Time) time.Time {
	switch {
	case !r.ticking():
		return at
	case !r.ticks.whole:
		return earlier(at, now.Add(tickPoll))
	default:
		return earlier(at, later(r.ticks.at, now.Add(time.Millisecond)))
	}
}
