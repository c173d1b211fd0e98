package schedule

import (
	"maps"
	"slices"
	"time"
)

// hung counts the calls that have not returned for long. Other workers have replaced those that
// wait for them. The replaced workers are lost: they do not count as running.
type hung struct {
	calls    int             // batches that are in such a call
	messages int             // of these calls
	entries  map[*Entry]bool // their messages, until they are settled
	more     int             // how many more calls may hang than batches may run
	replaced int             // workers that were added for lost ones, and stay
}

// EachHung calls do for the first message of each batch that was handed out before the given time
// and is still running, unless the drainer stops. It holds the lock meanwhile.
func (s *Scheduler) EachHung(before time.Time, do func(*Entry)) {
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
func (s *Scheduler) busy() bool { return s.handed.batches-s.hung.calls >= s.handed.most }

// HungMessages returns how many messages lost workers have. They take no room from others: if they
// did, a topic whose calls hang could fill the memory, and nothing would be read of any topic.
func (s *Scheduler) HungMessages() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hung.messages
}

// HungEntries returns the messages that lost workers have, and those that have come back from them
// and are not settled, unless the drainer stops. Reads leave their keys out until then, in all
// topics: a read in between would begin behind what the reads before it have left out.
func (s *Scheduler) HungEntries() []*Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil
	}
	return slices.Collect(maps.Keys(s.hung.entries))
}

// closeKeys closes the keys of messages that a lost worker has until they are settled, and puts
// back the messages that wait behind them. Otherwise those could fill the memory, and nothing would
// be read of any topic.
func (s *Scheduler) closeKeys(batch []*Entry) {
	for _, e := range batch {
		s.hung.entries[e] = true
		if e.queue.keyed {
			e.queue.blocked = true
			e.keepClosed()
			s.putBack(e.queue)
		}
	}
	s.Signal()
}

// MayHang reports whether workers may be lost to so many batches: at first to as many as may run at
// a time. If they may not, and more is true, they may from now on, until none is lost.
func (s *Scheduler) MayHang(batches int, more bool) (may, added bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if added = more && batches > s.handed.most+s.hung.more; added {
		s.hung.more = batches - s.handed.most
	}
	return batches <= s.handed.most+s.hung.more, added
}

// ReplaceHung counts workers whose batches were handed out before the given time as lost, at most
// as many as MayHang allows. It returns how many workers must be added in their places.
func (s *Scheduler) ReplaceHung(before time.Time) (spares int) {
	s.EachHung(before, func(e *Entry) {
		if e.hung || s.hung.calls >= s.handed.most+s.hung.more {
			return
		}
		e.hung = true
		s.hung.messages += len(e.batch)
		s.closeKeys(e.batch)
		if e.alone { // its call may never return, and has not crashed the process
			e.alone = false
			s.cleared()
		}
		if s.hung.calls++; s.hung.calls > s.hung.replaced {
			s.hung.replaced++
			spares++
		}
		s.wake()
	})
	return spares
}
