package spool

import (
	"slices"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// finish records how a batch ended. Keys whose messages all succeeded go on at once. The others wait until that is
// settled: also where one died, since until then another process may have to handle it again, and first. And so does the
// key of a message that was tried again: what stands behind it was not read, and has to be, from there on.
func (s *scheduler) finish(batch []*entry, outcomes []Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.topic(batch[0].message.Topic)
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
		e.outcome, e.running = outcome, false
		s.finished = append(s.finished, e)
		if !e.outcome.through() || e.dropped || e.message.Ref.State == dialect.StateRetrying {
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
	if !s.awaited || slices.ContainsFunc(batch, func(e *entry) bool { return !e.simple() }) {
		s.signal()
	}
}

// rest ends the run of a queue.
func (s *scheduler) rest(q *queue) {
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

// putBack puts back what waits in a queue: it comes again behind the message that has closed the key.
func (s *scheduler) putBack(q *queue) {
	for _, waiting := range q.entries {
		waiting.outcome = Outcome{Verdict: Postpone}
		s.finished = append(s.finished, waiting)
	}
	q.entries = nil
}

// close forgets the queue of a key of which nothing is in memory but what is done.
func (s *scheduler) close(q *queue) {
	if s.keys[q.key] == q && q.closedBy == 0 {
		delete(s.keys, q.key)
	}
}

func (s *scheduler) forget(t *topicQueue) {
	if t.running == 0 && !t.turn {
		delete(s.topics, t.name)
	}
}

// await says whether a settlement of what succeeded is under way: nobody needs to be told of more such until it ends.
func (s *scheduler) await(awaited bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.awaited = awaited
	if !awaited {
		s.signal()
	}
}

func (s *scheduler) signal() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// takeFinished returns what is to be settled. Whoever takes it settles it, however often that needs trying.
func (s *scheduler) takeFinished() []*entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	finished := s.finished
	s.finished = nil
	return finished
}

// settled forgets messages. Their keys are open again: from now on the database knows who must wait.
func (s *scheduler) settled(entries []*entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range entries {
		s.remove(e)
		if e.opens {
			e.opens = false
			if e.queue.closedBy--; e.queue.closedBy == 0 {
				e.queue.blocked = false // a later message may still run, see hold
				if !e.queue.running {
					s.close(e.queue)
				}
			}
		}
		if e.alone {
			s.acquitted()
		}
	}
	s.wake()
}

func (s *scheduler) remove(e *entry) {
	if s.messages[e.message.Ref.ID] == e {
		delete(s.messages, e.message.Ref.ID)
	}
	delete(s.outlived, e)
	if s.perLane[e.message.Ref.Lane]--; s.perLane[e.message.Ref.Lane] == 0 {
		delete(s.perLane, e.message.Ref.Lane)
	}
}

// drop forgets the messages of some lanes that wait. Those that run end as they end, and their keys are closed until
// then: should the lanes come back, what is behind such a message waits until it is known what became of it.
func (s *scheduler) drop(lanes []int) {
	concerned := map[int]bool{}
	for _, lane := range lanes {
		concerned[lane] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.messages {
		if !concerned[e.message.Ref.Lane] {
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

func (s *scheduler) runs(key int64) bool { return s.keys[key] != nil && s.keys[key].running }

// simple says that nothing but this message depends on its being settled.
func (e *entry) simple() bool {
	return e.outcome.Verdict == Done && !e.opens && e.message.Ref.State != dialect.StateRetrying
}
