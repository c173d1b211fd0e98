package schedule

// suspects are messages that may crash the process: one of them runs, and the others wait.
type suspects struct {
	running bool
	waiting []*queue
}

// suspectBatch takes the head of the topic's first queue by itself. While another suspect runs, it
// sets the queue aside instead.
func (s *Scheduler) suspectBatch(t *topicQueue) []*Entry {
	q := t.ready[0]
	t.ready = t.ready[1:]
	if s.suspects.running {
		s.suspects.waiting = append(s.suspects.waiting, q)
		return nil
	}
	s.suspects.running = true
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

// cleared lets the next suspect run. It is called when the previous suspect has been settled. If
// the next one crashed the process before that outcome is written, the innocent previous one would
// have another start without an outcome.
func (s *Scheduler) cleared() {
	s.suspects.running = false
	waiting := s.suspects.waiting
	s.suspects.waiting = nil
	for _, q := range waiting {
		q.offered = false
		if len(q.entries) == 0 {
			s.forgetKey(q)
			continue
		}
		s.offer(q)
	}
}
