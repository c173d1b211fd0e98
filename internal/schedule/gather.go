package schedule

import (
	"cmp"
	"slices"
	"time"
)

// Gather says when waiting messages are handed out as a batch. The configuration sets the maximum size of the batch.
// Gather is for spools with one topic.
type Gather struct {
	// PerKey makes batches of one key each; a message without a key is a batch by itself.
	PerKey bool
	// Due returns the latest time at which a message stored at the given time must be handed out. The zero time means
	// that it may wait for others for ever.
	Due func(stored time.Time) time.Time
	// OnlyDue hands out only messages that are due: a message that was stored after the end of a period belongs to the
	// next one. Otherwise a due message takes others along, and a full batch is handed out even if no message is due.
	OnlyDue bool
}

// DueAt converts the due time of a message from the database's clock, which now shows the given time, to this process's
// clock.
func (g *Gather) DueAt(stored, now time.Time) time.Time {
	at := g.Due(stored)
	if at.IsZero() {
		return at
	}
	return time.Now().Add(at.Sub(now))
}

// gathered returns a complete batch. If there is none, it returns nil and wakes the workers when the next message is
// due.
func (s *Scheduler) gathered(now time.Time) []*Entry {
	t := s.turns[0]
	if s.admitted(t.name) == 0 {
		return nil
	}
	s.sweepReady(t)
	batch := s.takeAlone(t)
	if batch == nil && s.gather.PerKey {
		for _, q := range t.ready {
			if batch = s.complete([]*queue{q}, now); batch != nil {
				break
			}
		}
	} else if batch == nil {
		batch = s.complete(t.ready, now)
	}
	if batch == nil && len(t.ready) > 0 {
		s.lookAgain(t, now)
		return nil
	}
	for _, e := range batch {
		e.queue.offered, e.queue.running = false, true
	}
	t.ready = slices.DeleteFunc(t.ready, func(q *queue) bool { return q.running })
	s.begin(t, batch)
	return batch
}

// sweepReady drops queues that are empty because their lane was lost.
func (s *Scheduler) sweepReady(t *topicQueue) {
	t.ready = slices.DeleteFunc(t.ready, func(q *queue) bool {
		if len(q.entries) > 0 {
			return false
		}
		q.offered = false
		s.close(q)
		return true
	})
}

// takeAlone takes a message that must run alone, if there is one: a message that had a setback, or a suspect while no
// other suspect is running.
func (s *Scheduler) takeAlone(t *topicQueue) []*Entry {
	for _, q := range t.ready {
		switch head := q.entries[0]; {
		case head.Message.Suspect() && !s.suspectRuns:
			s.suspectRuns = true
			return q.alone()
		case head.Message.Apart && !head.Message.Suspect() && s.fits(nil, head):
			q.entries = q.entries[1:]
			return []*Entry{head}
		}
	}
	return nil
}

// complete takes the oldest messages of these queues, if they form a batch.
func (s *Scheduler) complete(queues []*queue, now time.Time) []*Entry {
	var waiting []*Entry
	due := false
	for _, q := range queues {
		for _, e := range q.entries {
			ripe := !e.Message.Due.IsZero() && !e.Message.Due.After(now)
			if e.Message.Suspect() || e.Message.Apart || (s.gather.OnlyDue && !ripe) {
				break // and all messages behind it
			}
			due = due || ripe
			waiting = append(waiting, e)
		}
	}
	if !due && (s.gather.OnlyDue || len(waiting) < s.batchSize) {
		return nil
	}
	slices.SortFunc(waiting, func(a, b *Entry) int { return cmp.Compare(a.Message.Ref.ID, b.Message.Ref.ID) })
	batch := s.room.part(waiting[:min(len(waiting), s.batchSize)])
	if !s.room.has(weight(batch)) {
		return nil // until other large messages have ended
	}
	if !s.admitsBatch(batch) {
		return nil
	}
	for _, e := range batch { // the batch has the first messages of each queue, in order
		e.queue.entries = e.queue.entries[1:]
	}
	return batch
}

// lookAgain wakes the workers when the first of the waiting messages is due.
func (s *Scheduler) lookAgain(t *topicQueue, now time.Time) {
	var next time.Time
	for _, q := range t.ready {
		for _, e := range q.entries {
			if at := e.Message.Due; at.After(now) && (next.IsZero() || at.Before(next)) {
				next = at
			}
		}
	}
	if s.alarm != nil {
		s.alarm.Stop()
		s.alarm = nil
	}
	if !next.IsZero() {
		s.alarm = time.AfterFunc(next.Sub(now), func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.work.Broadcast()
		})
	}
}
