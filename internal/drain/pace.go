package drain

import (
	"time"

	"github.com/postbox-go/watermill-postbox/internal/schedule"
)

// pace says when the next poll of all lanes is due. Each reason to read again is a call of now, by
// or wakeSoon; idle.go and trouble.go put the poll off.
type pace struct {
	at     time.Time     // of the next poll
	pause  time.Duration // between two polls that find nothing
	rested time.Time     // no wake-up causes a poll before this time
	owed   time.Time     // when the rests of all polls are over
	took   time.Duration // duration of the last poll
	// slowStart is how many messages that wait for their time a poll may take after a pause.
	slowStart schedule.SlowStart

	renewAt time.Time // when the leases are renewed; zero: at once
}

// now makes a poll due at once.
func (p *pace) now() { p.at = time.Time{} }

// by makes a poll due at this time at the latest.
func (p *pace) by(at time.Time) { p.at = earlier(p.at, at) }

func (p *pace) due(now time.Time) bool { return !now.Before(p.at) }

// read takes in how long a read lasted that a wake-up may have caused. The next one rests for so
// many times as long, and for most at most.
func (p *pace) read(started, now time.Time, restShare int, most time.Duration) {
	took := now.Sub(started)
	share := time.Duration(1+restShare) * min(took, p.took)
	p.took = took
	p.rested = later(p.owed, now)
	p.owed = earlier(later(p.owed, started).Add(share), now.Add(most))
}

// The rest after a poll of all lanes, as a multiple of its duration. If every commit causes another
// poll, polls take a third of the time. On a busy database, rarer polls find more messages each.
// With one writer, on SQLite, a poll blocks the writes of all other connections, so the rest is
// longer. A single slow poll must not cause a long rest during which messages wait, so the shorter
// one of the last two polls counts.
//
// The drainer may owe the rest of one poll: it takes a rest before the poll after the next.
// Otherwise a message that is committed shortly after a poll that found nothing would wait for that
// poll's rest, although nothing is busy.
const (
	restShare          = 2
	restShareOneWriter = 10
)

// plan sets the time of the next poll of all lanes: soon after a poll that found messages, later
// and later after polls that found none. While a log tells each change, polls only look for what it
// does not tell.
func (r *reader) plan(everything, something bool, started, now time.Time) {
	switch {
	case something && !r.log.followed(now):
		r.pace.pause = r.config.PollMin
	case everything:
		r.pace.pause = min(2*r.pace.pause, r.config.PollMax)
	}
	if everything || r.log.named {
		r.pace.read(started, now, r.restShare(), r.config.PollMax)
	}
	if everything {
		r.pace.at = r.pace.slowStart.Next(r.untilTick(later(r.pace.rested, now.Add(r.pace.pause)), now))
	}
}

func (r *reader) restShare() int {
	if r.spool.Statements.Kind.Can().OneWriter {
		return restShareOneWriter
	}
	return restShare
}

// wakeSoon makes the next poll start immediately, or as soon as the rest that is owed is over.
// While a log tells each change, the polls after it are as rare as before, so that the drainer
// becomes idle again.
func (r *reader) wakeSoon() {
	if r.pace.pause = r.config.PollMin; r.log.followed(time.Now()) {
		r.pace.pause = r.pollMost() / 2
	}
	r.pace.by(r.pace.rested)
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
