package drain

import (
	"time"
)

// The pause after a poll of all lanes, as a multiple of its duration. If every commit causes another poll, polls take a
// third of the time. On a busy database, rarer polls find more messages each. With one writer, on SQLite, a poll blocks
// the writes of all other connections, so the pause is longer. A single slow poll, such as one with a sweep, must not
// cause a long pause during which messages wait. So the shorter one of the last two polls counts.
const (
	restShare          = 2
	restShareOneWriter = 10
)

// plan sets the time of the next poll of all lanes: soon after a poll that found messages, later and later after polls
// that found none. While messages come through the log, polls only look for what the log does not bring.
func (d *Drainer) plan(everything, something bool, started, now time.Time) {
	switch {
	case something && !d.followed():
		d.pause = d.config.PollMin
	case everything:
		d.pause = min(2*d.pause, d.config.PollMax)
	}
	if !everything {
		return
	}
	took := now.Sub(started)
	rest := min(time.Duration(d.restShare())*min(took, d.took), d.config.PollMax)
	d.took = took
	d.rested, d.pollAt = now.Add(rest), d.slowStart.Next(now.Add(max(rest, d.pause)))
}

func (d *Drainer) restShare() int {
	if d.spool.Statements.Kind.Can().OneWriter {
		return restShareOneWriter
	}
	return restShare
}

// wakeSoon makes the next poll start immediately, or as soon as the pause after the last one is over.
func (d *Drainer) wakeSoon() {
	d.pause = d.config.PollMin
	if d.rested.Before(d.pollAt) {
		d.pollAt = d.rested
	}
}
