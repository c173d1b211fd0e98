package schedule

import (
	"container/heap"
	"slices"
	"time"
)

// limited reports whether the limit of the whole spool lets no batch through now, or keeps what it has for a part of an
// earlier one. It opens gates whose time has come.
func (s *Scheduler) limited() bool {
	if s.limits == nil {
		return false
	}
	s.openDue(time.Now())
	return s.repeats > 0 || s.limits.total != nil && s.limits.total.closed
}

// openDue opens the gates whose time has come.
func (s *Scheduler) openDue(now time.Time) {
	l := s.limits
	if len(l.timed) == 0 || l.timed[0].opens.After(now) {
		return
	}
	for len(l.timed) > 0 && !l.timed[0].opens.After(now) {
		s.open(l.timed[0], now)
	}
	s.wait()
}

// openAll opens all closed gates. Those that let nothing through close again.
func (s *Scheduler) openAll() {
	l, now := s.limits, time.Now()
	if l.total != nil && l.total.closed {
		s.open(l.total, now)
	}
	for _, g := range l.topics {
		if g.closed {
			s.open(g, now)
		}
	}
	for _, g := range l.keys {
		if g.closed {
			s.open(g, now)
		}
	}
}

// open lets those go on that waited at a gate.
func (s *Scheduler) open(g *gate, now time.Time) {
	if g.at != nowhere {
		heap.Remove(&s.limits.timed, g.at)
	}
	g.closed, g.opens = false, time.Time{}
	if len(g.waiting) > 0 {
		some := min(max(g.admits(now, len(g.waiting)), 1), len(g.waiting))
		s.offerSome(g, some)
		if len(g.waiting) > 0 {
			s.shut(g, now, some+1)
		}
	}
	if t := s.topics[g.topic]; t != nil && t.held {
		t.held = false
		s.takeTurn(t)
		s.forget(t)
	}
}

// offerSome lets the first of the queues at the gate of a key wait for the turn of their topics.
func (s *Scheduler) offerSome(g *gate, some int) {
	for _, q := range g.waiting[:some] {
		q.offered = false
		if len(q.entries) == 0 { // its lane was lost
			s.close(q)
			continue
		}
		q.first = true
		s.offer(q)
	}
	g.waiting = slices.Delete(g.waiting, 0, some)
}

// admitted returns how many messages of a topic may be handed out now. It closes the gate that lets none through.
func (s *Scheduler) admitted(topic string) int {
	if s.limits == nil {
		return s.batchSize
	}
	l, now := s.limits, time.Now()
	most := l.total.admits(now, s.batchSize)
	if most == 0 {
		s.shut(l.total, now, 1)
		return 0
	}
	g := l.topics[topic]
	if most = g.admits(now, most); most == 0 {
		s.hold(s.topic(topic), g, now)
	}
	return most
}

// admitsBatch reports whether a gathered batch may be handed out now. If not, the gate of the spool, which has one topic,
// is closed until all its messages may.
func (s *Scheduler) admitsBatch(batch []*Entry) bool {
	if s.limits == nil || s.limits.total == nil || s.limits.total.closed {
		return s.limits == nil || s.limits.total == nil
	}
	now := time.Now()
	if s.limits.total.admits(now, len(batch)) == len(batch) {
		return true
	}
	s.shut(s.limits.total, now, len(batch))
	return false
}

// hold lets the queues of a topic wait at its gate.
func (s *Scheduler) hold(t *topicQueue, g *gate, now time.Time) {
	if t.turn {
		s.turns = slices.DeleteFunc(s.turns, func(of *topicQueue) bool { return of == t })
	}
	t.turn, t.held = false, true
	s.shut(g, now, 1)
	s.limits.crowd[g] = struct{}{}
}

// admitsKey reports whether the limit of its key lets the head of a queue through. If not, the queue waits at the gate.
// Those that waited there come first.
func (s *Scheduler) admitsKey(q *queue) bool {
	g := q.gate
	if g == nil {
		return true
	}
	now := time.Now()
	if (q.first || len(g.waiting) == 0) && g.admits(now, 1) > 0 {
		q.first = false
		return true
	}
	g.waiting = append(g.waiting, q)
	q.first, q.offered = false, true
	if !g.closed {
		s.shut(g, now, 1)
		s.limits.crowd[g] = struct{}{}
	}
	return false
}

// another reports whether the limit of its key lets one more message of a queue into the batch.
func (q *queue) another() bool { return q.gate == nil || q.gate.admits(time.Now(), 1) > 0 }

// chosen counts a message that was taken into a batch.
func (q *queue) chosen() {
	if q.gate != nil {
		q.gate.pending++
	}
}

// takeLimits counts a batch that is handed out.
func (s *Scheduler) takeLimits(topic string, batch []*Entry) {
	if s.limits == nil || len(batch) == 0 {
		return
	}
	now := time.Now()
	s.limits.total.take(now, len(batch))
	s.limits.topics[topic].take(now, len(batch))
	for _, e := range batch {
		if g := e.queue.gate; g != nil {
			g.pending = 0
			g.take(now, 1)
		}
	}
}

// leaveLimits counts the end of a batch.
func (s *Scheduler) leaveLimits(topic string, batch []*Entry) {
	if s.limits == nil {
		return
	}
	now := time.Now()
	s.leave(s.limits.total, now)
	s.leave(s.limits.topics[topic], now)
	for _, e := range batch {
		s.leave(e.queue.gate, now)
	}
}

// leave counts the end of a call, and opens the gate if messages wait for a slot.
func (s *Scheduler) leave(g *gate, now time.Time) {
	g.leave()
	if g != nil && g.closed && g.opens.IsZero() {
		s.open(g, now)
	}
}

// admitsLarge reports whether the limits of its topic and key let the head of the first queue through that was set aside
// for want of room. If not, the queue waits for the limit, and comes back after that.
func (s *Scheduler) admitsLarge(q *queue) bool {
	if s.limits == nil {
		return true
	}
	now, topic := time.Now(), q.entries[0].Message.Topic
	if g := s.limits.topics[topic]; g.admits(now, 1) == 0 {
		s.takeAside()
		if t := s.topic(topic); !t.held {
			s.hold(t, g, now)
		}
		s.offer(q)
		return false
	}
	if q.gate == nil || q.gate.admits(now, 1) > 0 {
		return true
	}
	s.takeAside()
	return s.admitsKey(q)
}
