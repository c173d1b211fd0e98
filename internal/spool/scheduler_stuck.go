package spool

import "time"

// eachStuck calls do for the first message of each batch that was handed out before that time and still runs, unless the drainer stops. It has the lock meanwhile.
func (s *scheduler) eachStuck(before time.Time, do func(*entry)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return
	}
	look := func(e *entry) {
		if e.running && !e.begun.IsZero() && e.begun.Before(before) {
			do(e)
		}
	}
	for _, e := range s.messages {
		look(e)
	}
	for e := range s.outlived {
		look(e)
	}
}

// busy says whether as many batches run as may.
func (s *scheduler) busy() bool { return s.batches-s.lost >= s.most }

// replaceStuck counts workers whose batches were handed out before that time as lost, as many as may run at most, and returns how many workers must be added in their
// places.
func (s *scheduler) replaceStuck(before time.Time) (spares int) {
	s.eachStuck(before, func(e *entry) {
		if e.stuck || s.lost >= s.most {
			return
		}
		e.stuck = true
		if s.lost++; s.lost > s.spares {
			s.spares++
			spares++
		}
		s.wake()
	})
	return spares
}
