package schedule

import (
	"cmp"
	"slices"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Gather says when waiting messages are handed out as a batch. The configuration sets the maximum
// size of the batch. Gather is for spools with one topic.
type Gather struct {
	// PerKey makes batches of one key each; a message without a key is a batch by itself.
	PerKey bool
	// Due returns the latest time at which a message stored at the given time must be handed out,
	// both by the database's clock. The zero time means that it may wait for others for ever.
	Due func(stored time.Time) time.Time
	// OnlyDue hands out only messages that are due: a message that was stored after the end of a
	// period belongs to the next one. A batch is smaller than it may be only if nothing else is
	// due, so it waits until all that is due has been read. Otherwise a due message takes others
	// along, and a full batch is handed out even if no message is due.
	OnlyDue bool
}

// batching is what batches that wait for more messages need.
type batching struct {
	gather *Gather
	reads  heardOfReads
	alarm  *time.Timer // fires when a gathered message is due
}

// heardOfReads is what the drainer has told of its reads, for batches.
type heardOfReads struct {
	readAt time.Time // the last read, by the database's clock
	heard  time.Time // the same by this process's clock
	whole  bool      // all that was due then has been read
	full   bool      // nothing more is read until a message is settled
}

// LoadRead is [Scheduler.Load] for batches. It tells that messages were read at this time by the
// database's clock, and whether all that was due then is in memory with them.
func (s *Scheduler) LoadRead(at time.Time, whole bool, messages []*spool.Message) (leftOut []*spool.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads.readAt, s.reads.heard, s.reads.whole = at, time.Now(), whole
	return s.load(messages)
}

// Full tells whether the memory is full. Batches of one key do not wait for more then.
func (s *Scheduler) Full(full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reads.full != full {
		s.reads.full = full
		s.work.Broadcast()
	}
}

// gathered returns a complete batch. If there is none, it returns nil and wakes the workers when
// the next message is due.
func (s *Scheduler) gathered(now time.Time) []*Entry {
	t := s.topics.turns[0]
	switch heard := s.reads.heard; {
	case s.gather.OnlyDue:
		now = s.reads.readAt
	case !heard.IsZero():
		now = s.reads.readAt.Add(now.Sub(heard))
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
		if !s.gather.OnlyDue {
			s.lookAgain(t, now)
		}
		return nil
	}
	more := s.behind(now) > 0 || slices.ContainsFunc(t.ready, func(q *queue) bool { return q.ripe(now) > 0 })
	last := s.gather.OnlyDue && !s.gather.PerKey && s.reads.whole && !more
	for _, e := range batch {
		e.queue.offered, e.queue.running, e.Message.Last = false, true, last
	}
	t.ready = slices.DeleteFunc(t.ready, func(q *queue) bool { return q.running })
	s.begin(t, batch)
	return batch
}

// ripe returns how many of the first messages of a queue are due.
func (q *queue) ripe(now time.Time) (due int) {
	for _, e := range q.entries {
		if !e.due(now) {
			break
		}
		due++
	}
	return due
}

// behind returns how many messages are due that wait for running ones of their keys.
func (s *Scheduler) behind(now time.Time) (due int) {
	for _, q := range s.keys {
		if !q.offered {
			due += q.ripe(now)
		}
	}
	return due
}

// due reports whether a batch must take the message.
func (e *Entry) due(now time.Time) bool { return !e.Message.Due.IsZero() && !e.Message.Due.After(now) }

// sweepReady drops queues that are empty because their lane was lost.
func (s *Scheduler) sweepReady(t *topicQueue) {
	t.ready = slices.DeleteFunc(t.ready, func(q *queue) bool {
		if len(q.entries) > 0 {
			return false
		}
		q.offered = false
		s.forgetKey(q)
		return true
	})
}

// takeAlone takes a message that must run alone, if there is one: a message that had a setback, or
// a suspect while no other suspect is running.
func (s *Scheduler) takeAlone(t *topicQueue) []*Entry {
	for _, q := range t.ready {
		switch head := q.entries[0]; {
		case head.Message.Suspect() && s.suspects.running || !head.Message.Suspect() && (!head.Message.Apart || !s.fits(nil, head)):
		case s.admitted(t.name) == 0:
			return nil
		case head.Message.Suspect():
			s.suspects.running = true
			return q.alone()
		default:
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
			ripe := e.due(now)
			if e.Message.Suspect() || e.Message.Apart || (s.gather.OnlyDue && !ripe) {
				break // and all messages behind it
			}
			due = due || ripe
			waiting = append(waiting, e)
		}
	}
	if !due && (s.gather.OnlyDue || len(waiting) < s.batchSize) || s.gather.OnlyDue && s.mayGrow(len(waiting), now) {
		return nil
	}
	slices.SortFunc(waiting, func(a, b *Entry) int { return cmp.Compare(a.Message.Ref.ID, b.Message.Ref.ID) })
	batch := s.payloads.part(waiting[:min(len(waiting), s.batchSize)])
	if !s.payloads.has(weight(batch)) {
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

// mayGrow reports whether a batch of due messages should wait for others. It waits until all due
// messages have been read, and until the earlier messages of their keys have run. A full batch
// waits, too, until it is known whether it is the last one.
func (s *Scheduler) mayGrow(due int, now time.Time) bool {
	switch {
	case s.reads.whole:
		return due < s.batchSize && !s.gather.PerKey && s.behind(now) > 0
	case s.reads.full && s.gather.PerKey:
		return false
	default:
		return due <= s.batchSize
	}
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
