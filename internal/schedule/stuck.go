package schedule

import "time"

// EachStuck calls do for the first message of each batch that was handed out before the given time and is still
// running, unless the drainer stops. It holds the lock meanwhile.
func (s *Scheduler) EachStuck(before time.Time, do func(*Entry)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return
	}
	look := func(e *Entry) {
		if e.running && !e.Begun.IsZero() && e.Begun.Before(before) {
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

// busy reports whether the maximum number of batches is running.
func (s *Scheduler) busy() bool { return s.batches-s.lost >= s.most }

// Beside returns how many messages lost workers have. They take no room from others: if they did, a topic whose calls hang could fill the
// memory, and nothing would be read of any topic.
func (s *Scheduler) Beside() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.beside
}

// Lost returns the messages that lost workers have, unless the drainer stops.
func (s *Scheduler) Lost() (messages []*Entry) {
	if s.Beside() == 0 { // as nearly always: do not look at each message
		return nil
	}
	s.EachStuck(time.Now(), func(e *Entry) {
		if e.stuck {
			messages = append(messages, e.batch...)
		}
	})
	return messages
}

// closeKeys closes the keys of messages that a lost worker has until they are settled, and puts back the messages that wait behind them. Otherwise
// those could fill the memory, and nothing would be read of any topic.
func (s *Scheduler) closeKeys(batch []*Entry) {
	for _, e := range batch {
		if e.queue.keyed {
			e.queue.blocked = true
			e.keepClosed()
			s.putBack(e.queue)
		}
	}
	s.Signal()
}

// MayLose reports whether workers may be lost to so many batches: at first to as many as may run at a time. If they may not, and more is
// true, they may from now on, until none is lost.
func (s *Scheduler) MayLose(batches int, more bool) (may, added bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if added = more && batches > s.most+s.beyond; added {
		s.beyond = batches - s.most
	}
	return batches <= s.most+s.beyond, added
}

// ReplaceStuck counts workers whose batches were handed out before the given time as lost, at most as many as MayLose
// allows. It returns how many workers must be added in their places.
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
