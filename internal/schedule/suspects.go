package schedule

// suspectBatch takes the head of the topic's first queue by itself, or, while another such message runs, puts the
// queue aside.
func (s *Scheduler) suspectBatch(t *topicQueue) []*Entry {
	q := t.ready[0]
	t.ready = t.ready[1:]
	if s.suspectRuns {
		s.suspectsWaiting = append(s.suspectsWaiting, q)
		return nil
	}
	s.suspectRuns = true
	q.offered, q.running = false, true
	return q.alone()
}

// alone takes the head of a queue by itself.
func (q *queue) alone() []*Entry {
	head := q.entries[0]
	head.alone = true
	q.entries = q.entries[1:]
	return []*Entry{head}
}

// cleared lets the next message of its kind run. That is when the one before is settled: if the next one brought the
// process down while the outcome is not written, an innocent would have been started without one again.
func (s *Scheduler) cleared() {
	s.suspectRuns = false
	waiting := s.suspectsWaiting
	s.suspectsWaiting = nil
	for _, q := range waiting {
		q.offered = false
		if len(q.entries) == 0 {
			s.close(q)
			continue
		}
		s.offer(q)
	}
}
