package schedule

// CloseKey closes the key of a message that has been handled and cannot be settled for a while.
// Waiting messages of the key are put back.
func (s *Scheduler) CloseKey(e *Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.alone {
		e.alone = false
		s.cleared()
		s.wake()
	}
	s.keepKeyClosed(e)
	if q := e.queue; !q.running {
		s.putBack(q)
	}
}

// keepKeyClosed closes the key of a message that has ended, until it is settled. Later messages of
// the key may be in another queue by now, since the key was open: then it closes that one.
func (s *Scheduler) keepKeyClosed(e *Entry) {
	if e.ClosesKey { // the message may have kept another queue of the key closed
		e.ClosesKey = false
		e.queue.closedBy--
	}
	if current := s.keys[e.queue.key]; e.queue.keyed && current != nil {
		current.noteLeftOut(e.queue.leftOut)
		e.queue = current
	} else if e.queue.keyed { // the key was open, without any message in memory
		s.keys[e.queue.key] = e.queue
	}
	e.queue.blocked = true
	e.keepClosed()
}
