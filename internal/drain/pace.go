package drain

import "time"

// The rest after a poll of all lanes, as a multiple of its duration. If every commit causes another poll, polls take a
// third of the time. On a busy database, rarer polls find more messages each. With one writer, on SQLite, a poll blocks
// the writes of all other connections, so the rest is longer. A single slow poll must not cause a long rest during which
// messages wait, so the shorter one of the last two polls counts.
//
// The drainer may owe the rest of one poll: it takes a rest before the poll after the next. Otherwise a message that is committed
// shortly after a poll that found nothing would wait for that poll's rest, although nothing is busy.
const (
	restShare          = 2
	restShareOneWriter = 10
)

// plan sets the time of the next poll of all lanes: soon after a poll that found messages, later and later after polls
// that found none. While a log tells each change, polls only look for what it does not tell.
func (d *Drainer) plan(everything, something bool, started, now time.Time) {
	switch {
	case something && !d.followed(now):
		d.pause = d.config.PollMin
	case everything:
		d.pause = min(2*d.pause, d.config.PollMax)
	}
	if everything {
		d.oweRest(started, now)
		d.pollAt = d.slowStart.Next(d.untilTick(later(d.rested, now.Add(d.pause)), now))
	}
}

// oweRest sets the rest after a read that a wake-up has caused.
func (d *Drainer) oweRest(started, now time.Time) {
	took := now.Sub(started)
	share := time.Duration(1+d.restShare()) * min(took, d.took)
	d.took = took
	d.rested = later(d.owed, now)
	d.owed = earlier(later(d.owed, started).Add(share), now.Add(d.config.PollMax))
}

func (d *Drainer) restShare() int {
	if d.spool.Statements.Kind.Can().OneWriter {
		return restShareOneWriter
	}
	return restShare
}

// wakeSoon makes the next poll start immediately, or as soon as the rest that is owed is over.
// While a log tells each change, the polls after it are as rare as before, so that the drainer
// becomes idle again.
func (d *Drainer) wakeSoon() {
	if d.pause = d.config.PollMin; d.followed(time.Now()) {
		d.pause = d.pollMost() / 2
	}
	if d.rested.Before(d.pollAt) {
		d.pollAt = d.rested
	}
}
