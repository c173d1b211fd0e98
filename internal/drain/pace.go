package drain

import (
	"time"

	"github.com/postbox-go/watermill-postbox/internal/schedule"
)

// pace says when the next poll of all lanes is due. Each reason to read again is a call of now, by
// or wakeSoon; idle.go and trouble.go put the poll off.
type pace struct {
	at        time.Time     // of the next poll
	pause     time.Duration // between two polls that find nothing
	notBefore time.Time     // no wake-up causes a poll before this time
	owed      time.Time     // when the gaps of all polls are over
	took      time.Duration // duration of the last poll
	// slowStart is how many messages that wait for their time a poll may take after a pause.
	slowStart schedule.SlowStart

	renewAt time.Time // when the leases are renewed; zero: at once
}

// now makes a poll due at once.
func (p *pace) now() { p.at = time.Time{} }

// by makes a poll due at this time at the latest.
func (p *pace) by(at time.Time) { p.at = earlier(p.at, at) }

func (p *pace) due(now time.Time) bool { return !now.Before(p.at) }

// read takes in how long a read lasted that a wake-up may have caused. The gap before the next one
// is so many times as long, and most at most.
func (p *pace) read(started, now time.Time, gapShare int, most time.Duration) {
	took := now.Sub(started)
	share := time.Duration(1+gapShare) * min(took, p.took)
	p.took = took
	p.notBefore = later(p.owed, now)
	p.owed = earlier(later(p.owed, started).Add(share), now.Add(most))
}

// The gap after a poll of all lanes, as a multiple of its duration. If every commit causes another
// poll, polls take a third of the time. On a busy database, rarer polls find more messages each.
// With one writer, on SQLite, a poll blocks the writes of all other connections, so the gap is
// longer. A single slow poll must not cause a long gap during which messages wait, so the shorter
// one of the last two polls counts.
//
// The next poll may come without a gap. The one after it waits for both gaps. Otherwise a message
// that is committed shortly after a poll that found nothing would wait, although nothing is busy.
const (
	gapShareDefault   = 2
	gapShareOneWriter = 10
)

// plan sets the time of the next poll of all lanes: soon after a poll that found messages, later
// and later after polls that found none. While a log tells each change, polls only look for what it
// does not tell.
func (r *reader) plan(everything, something bool, started, now time.Time) {
	switch {
	case something && !r.tailing.followed(now):
		r.pace.pause = r.config.PollMin
	case everything:
		r.pace.pause = min(2*r.pace.pause, r.config.PollMax)
	}
	if everything || r.tailing.named {
		r.pace.read(started, now, r.gapShare(), r.config.PollMax)
	}
	if everything {
		r.pace.at = r.pace.slowStart.Next(r.untilTick(later(r.pace.notBefore, now.Add(r.pace.pause)), now))
	}
}

func (r *reader) gapShare() int {
	if r.spool.Statements.Kind.Can().OneWriter {
		return gapShareOneWriter
	}
	return gapShareDefault
}

// wakeSoon makes the next poll start immediately, or as soon as the gap that is owed is over.
// While a log tells each change, the polls after it are as rare as before, so that the drainer
// becomes idle again.
func (r *reader) wakeSoon() {
	if r.pace.pause = r.config.PollMin; r.tailing.followed(time.Now()) {
		r.pace.pause = r.pollMost() / 2
	}
	r.pace.by(r.pace.notBefore)
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
