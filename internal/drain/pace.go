package drain

import (
	"time"
)

// How many times as long as a look at all lanes took a drainer rests from it: where commits always give a reason for the
// next look, these take a third of the time, and on a busy database each finds the more the rarer they are. Where there is
// one writer, on SQLite, a look is time in which no other connection writes. One look that took long, such as a sweep, is no reason for a
// long rest, in which messages would wait: the shorter one of the last two counts.
const (
	restShare          = 2
	restShareOneWriter = 10
)

// plan chooses the time of the next look at all lanes: soon after one that found something, later and later
// after those that did not.
func (d *Drainer) plan(everything, something bool, started, now time.Time) {
	switch {
	case something:
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

// wakeSoon makes the next look come at once, or as soon as the drainer has rested from the last one.
func (d *Drainer) wakeSoon() {
	d.pause = d.config.PollMin
	if d.rested.Before(d.pollAt) {
		d.pollAt = d.rested
	}
}
