package schedule

import (
	"slices"

	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Replaced returns an id under which a message was found that is another one than the message in memory; 0 is none.
func (s *Scheduler) Replaced(found []*spool.Message) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range found {
		if e := s.messages[m.Ref.ID]; e != nil && e.Message.Ref.CreatedAt != m.Ref.CreatedAt {
			return m.Ref.ID
		}
	}
	return 0
}

// Outlive drops the waiting messages of all lanes, and returns them. Messages that were handed out end as they end, beside messages that may
// have the same ids, and its keys are closed until that is settled.
func (s *Scheduler) Outlive() (dropped []*spool.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, e := range s.messages {
		if i := slices.Index(e.queue.entries, e); i >= 0 {
			e.queue.entries = slices.Delete(e.queue.entries, i, i+1)
			s.remove(e)
			dropped = append(dropped, e.Message)
			continue
		}
		s.leaveRunning(e)
		delete(s.messages, id)
		s.outlived[e] = true
	}
	return dropped
}

// HasOutlived says whether a message was handed out before [Scheduler.Outlive] was called, and is not settled.
func (s *Scheduler) HasOutlived(e *Entry) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.outlived[e]
}

// leaveRunning lets a message that was handed out end as it ends, and closes its key until then.
func (s *Scheduler) leaveRunning(e *Entry) {
	e.dropped = true
	if q := e.queue; q.keyed && !s.runs(q.key) { // it has ended, and is not settled yet
		q.blocked = true
		e.keepClosed()
		s.keys[q.key] = q
	}
}
