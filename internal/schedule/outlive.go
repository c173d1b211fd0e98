package schedule

import (
	"slices"

	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Replaced returns the id of a message found that differs from the message in memory with the same
// id; 0 means none.
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

// Outlive drops the waiting messages of all lanes, and returns them. Messages that were handed out
// continue to their end, next to new messages that may have the same ids. Their keys are closed
// until they are settled.
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
		s.letFinish(e)
		delete(s.messages, id)
		s.outlived[e] = true
	}
	return dropped
}

// HasOutlived reports whether a message was handed out before [Scheduler.Outlive] was called, and
// is not settled.
func (s *Scheduler) HasOutlived(e *Entry) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.outlived[e]
}

// letFinish lets a message that was handed out continue to its end, and closes its key until
// then.
func (s *Scheduler) letFinish(e *Entry) {
	e.dropped = true
	if q := e.queue; q.keyed && !s.runs(q.key) { // the message has ended, and is not settled yet
		s.keepKeyClosed(e)
	}
}
