package schedule

import "time"

// SlowStart spreads retries. After a time in which nothing was handled, thousands of them are overdue at once, and the service that they failed on
// may just have come back. It begins with [SlowStartRate] messages in the first second, and doubles the rate
// each second until a read finds fewer than it may have. From then on it limits nothing, since each retry
// comes at its own time again. It concerns messages that wait for a time (state > 0), and never ready ones. Messages of a key
// behind one that is not admitted yet wait with it, as they do while it waits for its time.
type SlowStart struct {
	Active bool
	Now    func() time.Time
	since  time.Time // begin of the current second
	Rate   int       // messages that the current second has
	left   int       // of these
}

const (
	// SlowStartRate is how many messages the first second has.
	SlowStartRate   = 100
	slowStartSecond = time.Second
	slowStartMost   = 1 << 20 // a rate that limits nothing
)

// Begin starts slowly, or again.
func (s *SlowStart) Begin() {
	if s.Active {
		s.left = min(s.left, SlowStartRate)
	} else {
		s.since, s.left = s.Now(), SlowStartRate
	}
	s.Active, s.Rate = true, SlowStartRate
}

// Allow returns how many of so many messages a read may ask for now.
func (s *SlowStart) Allow(wanted int) int {
	if !s.Active {
		return wanted
	}
	if now := s.Now(); now.Sub(s.since) >= slowStartSecond {
		s.since, s.Rate = now, min(2*s.Rate, slowStartMost)
		s.left = s.Rate
	}
	return min(wanted, s.left)
}

// Found takes in a read that asked for so many such messages and got so many.
func (s *SlowStart) Found(asked, got int) {
	if !s.Active || asked == 0 {
		return
	}
	s.left -= got
	s.Active = got >= asked
}

// Next returns the time of the next look, at which more may be admitted, if it would be later.
func (s *SlowStart) Next(planned time.Time) time.Time {
	if end := s.since.Add(slowStartSecond); s.Active && end.Before(planned) {
		return end
	}
	return planned
}
