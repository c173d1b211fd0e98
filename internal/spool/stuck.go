package spool

import "time"

// A publisher may wait for its broker for ever, and then its call keeps a worker. If a topic has more messages than there are workers, all of them would come to wait like this, and
// nothing else would be published. So the owner of a drainer asks now and then for calls that have not returned for long, and closes their topic. Each
// worker that such a call keeps is replaced, by as many as there are workers at most.

// Stuck is what is known of the calls of a topic that have not returned for long.
type Stuck struct {
	Calls     int
	Since     time.Time // when the first of them began
	MessageID string    // of its first message
}

// Stuck returns the topics that have calls of the handler which began before that time and have not returned, and lets other workers take the places of theirs.
func (d *Drainer) Stuck(before time.Time) map[string]Stuck {
	return d.scheduler.stuck(before, func() { d.workers.Go(func() { d.work(d.handling) }) })
}

// stuck is [Drainer.Stuck]. It calls replace for each further worker that is needed, unless the drainer stops.
func (s *scheduler) stuck(before time.Time, replace func()) map[string]Stuck {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil
	}
	found := map[string]Stuck{}
	look := func(e *entry) {
		if !e.running || e.begun.IsZero() || !e.begun.Before(before) {
			return
		}
		topic := found[e.message.Topic]
		topic.Calls++
		if topic.Calls == 1 || e.begun.Before(topic.Since) {
			topic.Since, topic.MessageID = e.begun, e.message.MessageID
		}
		found[e.message.Topic] = topic
		if e.stuck || s.lost >= s.most {
			return
		}
		e.stuck = true
		if s.lost++; s.lost > s.spares {
			s.spares++
			replace()
		}
	}
	for _, e := range s.messages {
		look(e)
	}
	for e := range s.outlived {
		look(e)
	}
	s.wake()
	return found
}

// busy says whether as many batches run as may.
func (s *scheduler) busy() bool { return s.batches-s.lost >= s.most }
