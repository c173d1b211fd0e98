package schedule

// Hold closes the key of a message that has been handled and cannot be settled for a while. Waiting messages of the key
// are put back.
func (s *Scheduler) Hold(e *Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.alone {
		e.alone = false
		s.cleared()
		s.wake()
	}
	if e.Opens { // the message may have kept another queue of the key closed
		e.Opens = false
		e.queue.closedBy--
	}
	if current := s.keys[e.queue.key]; e.queue.keyed && current != nil {
		current.leave(e.queue.left)
		e.queue = current
	} else if e.queue.keyed { // the key was open, without any message in memory
		s.keys[e.queue.key] = e.queue
	}
	q := e.queue
	q.blocked = true
	e.keepClosed()
	if !q.running {
		s.putBack(q)
	}
}
