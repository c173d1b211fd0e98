package schedule

import (
	"slices"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Finish records the outcomes of a batch. A key whose messages all succeeded continues immediately.
// Another key waits until its messages are settled. This includes a key with a dead message: until
// the settlement, another process may have to handle that message again, before all others. It also
// includes the key of a message that had waited for another attempt: the messages behind it were
// not read, and must be read from there on.
func (s *Scheduler) Finish(batch []*Entry, outcomes []spool.Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.topic(batch[0].Message.Topic)
	s.handed.batches--
	if batch[0].hung {
		batch[0].hung = false
		s.hung.messages -= len(batch)
		if s.hung.calls--; s.hung.calls == 0 {
			s.hung.more = 0
		}
	}
	batch[0].batch = nil // it may stay in memory for long, see CloseKey, and would keep the others there
	s.payloads.release(batch)
	s.releaseLimits(t.name)
	s.handed.messages -= len(batch)
	t.running -= len(batch)
	for i, outcome := range outcomes {
		e := batch[i]
		e.Outcome, e.running = outcome, false
		s.finished = append(s.finished, e)
		if !e.Outcome.Through() || e.dropped || e.Message.Ref.State == dialect.StateRetrying {
			e.queue.blocked = true
		}
	}
	for _, e := range batch {
		if e.queue.blocked {
			e.keepClosed()
		}
		if e.queue.running { // not yet ended by an earlier message of the batch
			s.endRun(e.queue)
		}
	}
	s.forget(t)
	if s.gather != nil {
		s.wake()
	}
	if !s.awaited || slices.ContainsFunc(batch, func(e *Entry) bool { return !e.Simple() }) {
		s.Signal()
	}
}

// endRun ends the run of a queue.
func (s *Scheduler) endRun(q *queue) {
	q.running = false
	switch {
	case q.blocked:
		s.putBack(q)
	case len(q.entries) > 0:
		s.offer(q)
	default:
		s.forgetKey(q)
	}
}

// putBack puts back the waiting messages of a queue. They are read again after the message that has
// closed the key.
func (s *Scheduler) putBack(q *queue) {
	for _, waiting := range q.entries {
		waiting.Outcome = spool.Outcome{Verdict: spool.Postpone}
		s.finished = append(s.finished, waiting)
	}
	q.entries = nil
}

// forgetKey forgets the queue of a key if only done messages of the key are in memory.
func (s *Scheduler) forgetKey(q *queue) {
	if s.keys[q.key] == q && q.closedBy == 0 {
		delete(s.keys, q.key)
	}
}

func (s *Scheduler) forget(t *topicQueue) {
	if t.running == 0 && !t.turn && !t.atGate {
		delete(s.topics.named, t.name)
	}
}

// Await records whether a settlement of successful messages is running. Until it ends, further
// successful messages need no signal.
func (s *Scheduler) Await(awaited bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.awaited = awaited
	if !awaited {
		s.Signal()
	}
}

// Signal wakes the owner of the scheduler through Scheduler.Changed.
func (s *Scheduler) Signal() {
	select {
	case s.Changed <- struct{}{}:
	default:
	}
}

// TakeFinished returns the messages that must be settled. The caller settles them, with as many
// tries as necessary.
func (s *Scheduler) TakeFinished() []*Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	finished := s.finished
	s.finished = nil
	return finished
}

// Settled forgets messages. Their keys are open again: from now on the database knows which
// messages must wait. It returns the first message of each key that Load has left out, from which
// on the key must be read again.
func (s *Scheduler) Settled(entries []*Entry) (leftOut []dialect.Ref) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range entries {
		s.remove(e)
		if e.ClosesKey {
			e.ClosesKey = false
			if e.queue.closedBy--; e.queue.closedBy == 0 {
				e.queue.blocked = false // a later message may still be running, see CloseKey
				if e.queue.leftOut.ID != 0 {
					leftOut = append(leftOut, e.queue.leftOut)
					e.queue.leftOut = dialect.Ref{}
				}
				if !e.queue.running {
					s.forgetKey(e.queue)
				}
			}
		}
		if e.alone {
			s.cleared()
		}
	}
	s.wake()
	return leftOut
}

func (s *Scheduler) remove(e *Entry) {
	if s.limits != nil {
		s.exit(e)
	}
	if s.messages[e.Message.Ref.ID] == e {
		delete(s.messages, e.Message.Ref.ID)
	}
	delete(s.outlived, e)
	delete(s.hung.entries, e)
	if s.perLane[e.Message.Ref.Lane]--; s.perLane[e.Message.Ref.Lane] == 0 {
		delete(s.perLane, e.Message.Ref.Lane)
	}
}

// Drop forgets the waiting messages of some lanes, and returns them. Running messages continue to
// their end, and their keys are closed until then. If the lanes come back, messages behind a
// running one wait until its outcome is known.
func (s *Scheduler) Drop(lanes []int) (dropped []*spool.Message) {
	concerned := map[int]bool{}
	for _, lane := range lanes {
		concerned[lane] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.messages {
		if !concerned[e.Message.Ref.Lane] {
			continue
		}
		if i := slices.Index(e.queue.entries, e); i >= 0 {
			e.queue.entries = slices.Delete(e.queue.entries, i, i+1)
			s.remove(e)
			dropped = append(dropped, e.Message)
			continue
		}
		s.letFinish(e)
	}
	return dropped
}

func (s *Scheduler) runs(key orderOf) bool { return s.keys[key] != nil && s.keys[key].running }

// Simple reports whether no other message depends on the settlement of this message.
func (e *Entry) Simple() bool {
	return e.Outcome.Verdict == spool.Done && !e.ClosesKey && e.Message.Ref.State != dialect.StateRetrying
}
