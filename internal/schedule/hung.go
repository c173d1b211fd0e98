package schedule

import (
	"maps"
	"slices"
	"time"
)

// EachStuck calls do for the first message of each batch that was handed out before the given time
// and is still running, unless the drainer stops. It holds the lock meanwhile.
func (s *Scheduler) EachStuck(before time.Time, do func(*Entry)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return
	}
	s.eachRunning(func(e *Entry) {
		if !e.Begun.IsZero() && e.Begun.Before(before) {
			do(e)
		}
	})
}

// eachRunning calls do for each message that a worker is handling.
func (s *Scheduler) eachRunning(do func(*Entry)) {
	for _, e := range s.messages {
		if e.running {
			do(e)
		}
	}
	for e := range s.outlived {
		if e.running {
			do(e)
		}
	}
}

// busy reports whether the maximum number of batches is running.
func (s *Scheduler) busy() bool { return s.batches-s.lost >= s.most }

// Beside returns how many messages lost workers have. They take no room from others: if they did, a
// topic whose calls hang could fill the memory, and nothing would be read of any topic.
func (s *Scheduler) Beside() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.beside
}

// Lost returns the messages that lost workers have, and those that have come back from them and are
// not settled, unless the drainer stops. Reads leave their keys out until then, in all topics: a
// read in between would begin behind what the reads before it have left out.
func (s *Scheduler) Lost() []*Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil
	}
	return slices.Collect(maps.Keys(s.strayed))
}

// closeKeys closes the keys of messages that a lost worker has until they are settled, and puts
// back the messages that wait behind them. Otherwise those could fill the memory, and nothing would
// be read of any topic.
func (s *Scheduler) closeKeys(batch []*Entry) {
	for _, e := range batch {
		s.strayed[e] = true
		if e.queue.keyed {
			e.queue.blocked = true
			e.keepClosed()
			s.putBack(e.queue)
		}
	}
	s.Signal()
}

// MayLose reports whether workers may be lost to so many batches: at first to as many as may run at
// a time. If they may not, and more is true, they may from now on, until none is lost.
func (s *Scheduler) MayLose(batches int, more bool) (may, added bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if added = more && batches > s.most+s.beyond; added {
		s.beyond = batches - s.most
	}
	return batches <= s.most+s.beyond, added
}

// ReplaceStuck counts workers whose batches were handed out before the given time as lost, at most
// as many as MayLose allows. It returns how many workers must be added in their places.
func (s *Scheduler) ReplaceStuck(before time.Time) (spares int) {
	s.EachStuck(before, func(e *Entry) {
		if e.stuck || s.lost >= s.most+s.beyond {
			return
		}
		e.stuck = true
		s.beside += len(e.batch)
		s.closeKeys(e.batch)
		if e.alone { // its call may never return, and has not crashed the process
			e.alone = false
			s.cleared()
		}
		if s.lost++; s.lost > s.spares {
			s.spares++
			spares++
		}
		s.wake()
	})
	return spares
}
