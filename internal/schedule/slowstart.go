package schedule

import "time"

// SlowStart spreads retries. After a time in which nothing was handled, thousands of them are
// overdue at once, and the service on which they failed may just have recovered. SlowStart allows
// [SlowStartRate] messages in the first second, and doubles the rate each second until a read finds
// fewer messages than it may have. From then on it limits nothing, since each retry comes at its
// own time again. It concerns only messages that wait for a time (state > 0), never ready ones.
// Messages of a key behind a message that is not admitted yet wait with it, as they do while it
// waits for its time.
type SlowStart struct {
	Active    bool
	Now       func() time.Time
	since     time.Time // start of the current second
	Rate      int       // messages that the current second allows
	remaining int       // messages still allowed in the current second
}

const (
	// SlowStartRate is the number of messages that the first second allows.
	SlowStartRate   = 100
	slowStartSecond = time.Second
	slowStartMost   = 1 << 20 // a rate that limits nothing
)

// Begin starts slowly, also if a slow start is already running.
func (s *SlowStart) Begin() {
	if s.Active {
		s.remaining = min(s.remaining, SlowStartRate)
	} else {
		s.since, s.remaining = s.Now(), SlowStartRate
	}
	s.Active, s.Rate = true, SlowStartRate
}

// Allow returns how many of the wanted messages a read may ask for now.
func (s *SlowStart) Allow(wanted int) int {
	if !s.Active {
		return wanted
	}
	if now := s.Now(); now.Sub(s.since) >= slowStartSecond {
		s.since, s.Rate = now, min(2*s.Rate, slowStartMost)
		s.remaining = s.Rate
	}
	return min(wanted, s.remaining)
}

// Found records that a read asked for some of these messages and got some.
func (s *SlowStart) Found(asked, got int) {
	if !s.Active || asked == 0 {
		return
	}
	s.remaining -= got
	s.Active = got >= asked
}

// Next returns the time of the next poll: the planned time, or the earlier time at which more
// messages are allowed.
func (s *SlowStart) Next(planned time.Time) time.Time {
	if end := s.since.Add(slowStartSecond); s.Active && end.Before(planned) {
		return end
	}
	return planned
}
