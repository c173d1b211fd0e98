package schedule

import (
	"cmp"
	"slices"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// The methods with which the drainer controls and inspects its scheduler, apart from passing
// messages.

// DropAll drops the waiting messages of all lanes, and returns them.
func (s *Scheduler) DropAll() (dropped []*spool.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.messages {
		q := e.queue
		for _, waiting := range q.entries {
			s.remove(waiting)
			dropped = append(dropped, waiting.Message)
		}
		q.entries = nil
	}
	return dropped
}

// Pause stops handing out messages, or continues.
func (s *Scheduler) Pause(paused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paused != paused {
		s.paused = paused
		s.work.Broadcast()
	}
}

// SetWorkers sets the maximum number of batches that run at a time.
func (s *Scheduler) SetWorkers(most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handed.most = most
	s.work.Broadcast()
}

// Bound sets the maximum number of payload bytes that are loaded one by one and handled at a time;
// 0 means no limit.
func (s *Scheduler) Bound(bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.payloads.most = bytes
}

// Stop ends handing out messages for good.
func (s *Scheduler) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		close(s.ended)
	}
	s.stopped = true
	if s.alarm != nil {
		s.alarm.Stop()
	}
	s.work.Broadcast()
}

// Extend moves the time after which no message is handed out.
func (s *Scheduler) Extend(deadline time.Time) { s.ExtendSince(s.Ahead(time.Now()), deadline) }

// ExtendSince is Extend, measured from a time at which the wall clock was ahead by the given
// duration.
func (s *Scheduler) ExtendSince(ahead time.Duration, deadline time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadline.ahead, s.deadline.at = ahead, deadline
	s.work.Broadcast()
}

// Known returns the messages in memory, by lane, that a read of these lanes after these ids could
// find again.
func (s *Scheduler) Known(from map[int]int64) map[int][]dialect.Known {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := map[int][]dialect.Known{}
	add := func(e *Entry) {
		ref := e.Message.Ref
		if ref.State != dialect.StateReady || ref.ID > from[ref.Lane] {
			known[ref.Lane] = append(known[ref.Lane], dialect.Known{ID: ref.ID, CreatedAt: ref.CreatedAt})
		}
	}
	for _, e := range s.messages {
		add(e)
	}
	for e := range s.outlived {
		add(e)
	}
	return known
}

// Between returns the ids in memory in a range.
func (s *Scheduler) Between(after, upTo int64) []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []int64
	for id := range s.messages {
		if id > after && id <= upTo {
			ids = append(ids, id)
		}
	}
	return ids
}

// InLane returns the number of messages of a lane in memory.
func (s *Scheduler) InLane(lane int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.perLane[lane]
}

// Running returns the messages that workers are handling.
func (s *Scheduler) Running() (messages []*Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.eachRunning(func(e *Entry) { messages = append(messages, e) })
	return messages
}

// RunningLanes returns the lanes of messages that workers are handling.
func (s *Scheduler) RunningLanes() map[int]bool {
	lanes := map[int]bool{}
	for _, e := range s.Running() {
		lanes[e.Message.Ref.Lane] = true
	}
	return lanes
}

// Size returns the number of messages in memory, and how many of them are running.
func (s *Scheduler) Size() (all, running int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.messages) + len(s.outlived), s.handed.messages
}

// InFlight returns the number of running messages of each topic.
func (s *Scheduler) InFlight() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := map[string]int{}
	for name, t := range s.topics.named {
		if t.running > 0 {
			counts[name] = t.running
		}
	}
	return counts
}

// Snapshot is the state of a scheduler at one moment.
type Snapshot struct {
	Messages []*spool.Message // in memory, in the order of their ids
	Running  int              // how many of them are running
	Workers  int              // maximum number of batches that run at a time
	Paused   bool
	// LeaseOver: no message is handed out, since the leases may be over.
	LeaseOver bool
}

// Snapshot returns the state of the scheduler, for tests and for diagnosis.
func (s *Scheduler) Snapshot() Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := Snapshot{Running: s.handed.messages, Workers: s.handed.most, Paused: s.paused, LeaseOver: s.leaseOver()}
	for _, e := range s.messages {
		now.Messages = append(now.Messages, e.Message)
	}
	slices.SortFunc(now.Messages, func(a, b *spool.Message) int { return cmp.Compare(a.Ref.ID, b.Ref.ID) })
	return now
}
