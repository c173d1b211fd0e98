package schedule

import (
	"slices"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Finish records how a batch ended. Keys whose messages all succeeded go on at once. The others wait until that is
// settled: also where one died, since until then another process may have to handle it again, and first. And so does the
// key of a message that was tried again: what stands behind it was not read, and has to be, from there on.
func (s *Scheduler) Finish(batch []*Entry, outcomes []spool.Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.topic(batch[0].Message.Topic)
	s.batches--
	if batch[0].stuck {
		batch[0].stuck = false
		s.lost--
	}
	s.room.leave(batch)
	s.running -= len(batch)
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
		if e.queue.running { // and not at rest since an earlier one of the batch
			s.rest(e.queue)
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

// rest ends the run of a queue.
func (s *Scheduler) rest(q *queue) {
	q.running = false
	switch {
	case q.blocked:
		s.putBack(q)
	case len(q.entries) > 0:
		s.offer(q)
	default:
		s.close(q)
	}
}

// putBack puts back the waiting messages of a queue. They come again behind the message that has closed the key.
func (s *Scheduler) putBack(q *queue) {
	for _, waiting := range q.entries {
		waiting.Outcome = spool.Outcome{Verdict: spool.Postpone}
		s.finished = append(s.finished, waiting)
	}
	q.entries = nil
}

// close forgets the queue of a key of which nothing is in memory but what is done.
func (s *Scheduler) close(q *queue) {
	if s.keys[q.key] == q && q.closedBy == 0 {
		delete(s.keys, q.key)
	}
}

func (s *Scheduler) forget(t *topicQueue) {
	if t.running == 0 && !t.turn {
		delete(s.topics, t.name)
	}
}

// Await says whether a settlement of what succeeded is under way: more such need not be announced until it ends.
func (s *Scheduler) Await(awaited bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.awaited = awaited
	if !awaited {
		s.Signal()
	}
}

// Signal lets the owner of the scheduler look, by [Scheduler.Changed].
func (s *Scheduler) Signal() {
	select {
	case s.Changed <- struct{}{}:
	default:
	}
}

// TakeFinished returns the messages that have to be settled. The caller settles them, however often it must try.
func (s *Scheduler) TakeFinished() []*Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	finished := s.finished
	s.finished = nil
	return finished
}

// Settled forgets messages. Their keys are open again: from now on the database knows who must wait.
func (s *Scheduler) Settled(entries []*Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range entries {
		s.remove(e)
		if e.Opens {
			e.Opens = false
			if e.queue.closedBy--; e.queue.closedBy == 0 {
				e.queue.blocked = false // a later message may still run, see hold
				if !e.queue.running {
					s.close(e.queue)
				}
			}
		}
		if e.alone {
			s.cleared()
		}
	}
	s.wake()
}

func (s *Scheduler) remove(e *Entry) {
	if s.messages[e.Message.Ref.ID] == e {
		delete(s.messages, e.Message.Ref.ID)
	}
	delete(s.outlived, e)
	if s.perLane[e.Message.Ref.Lane]--; s.perLane[e.Message.Ref.Lane] == 0 {
		delete(s.perLane, e.Message.Ref.Lane)
	}
}

// Drop forgets the messages of some lanes that wait. Those that run end as they end, and their keys are closed until
// then: should the lanes come back, what is behind such a message waits until it is known what became of it.
func (s *Scheduler) Drop(lanes []int) {
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
			continue
		}
		s.leaveRunning(e)
	}
}

func (s *Scheduler) runs(key int64) bool { return s.keys[key] != nil && s.keys[key].running }

// Simple says that nothing but this message depends on its being settled.
func (e *Entry) Simple() bool {
	return e.Outcome.Verdict == spool.Done && !e.Opens && e.Message.Ref.State != dialect.StateRetrying
}
