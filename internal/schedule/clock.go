package schedule

import "time"

// processStart holds a reading of both clocks.
var processStart = time.Now()

// wallAhead returns how far the wall clock has moved ahead of the monotonic clock between the start
// of the process and now. It is negative if the wall clock was set back.
func wallAhead(now time.Time) time.Duration {
	return now.Round(0).Sub(processStart.Round(0)) - now.Sub(processStart)
}

// StoodStill returns how long the process stood still between a reading of wallAhead and now.
func (s *Scheduler) StoodStill(since time.Duration, now time.Time) time.Duration {
	return max(s.Ahead(now)-since, 0)
}

// deadline is until when messages may be handed out: then the leases may be over.
type deadline struct {
	at    time.Time
	ahead time.Duration // how far the wall clock was ahead when the leases were renewed
}

// leaseOver reports whether the leases may be over, by either clock.
func (s *Scheduler) leaseOver() bool {
	now := time.Now() // read once: leaseOver is called for each batch, under the scheduler's lock
	return !now.Add(s.StoodStill(s.deadline.ahead, now)).Before(s.deadline.at)
}
