package spool

import (
	"time"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// What the drainer says to its scheduler beside messages, and what it asks of it.

// dropAll forgets what waits, in all lanes, and returns it.
func (s *scheduler) dropAll() (dropped []*Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.messages {
		q := e.queue
		for _, waiting := range q.entries {
			s.remove(waiting)
			dropped = append(dropped, waiting.message)
		}
		q.entries = nil
	}
	return dropped
}

// pause hands out nothing until it is called again.
func (s *scheduler) pause(paused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paused != paused {
		s.paused = paused
		s.work.Broadcast()
	}
}

// limit bounds the batches that run at a time.
func (s *scheduler) limit(most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.most = most
	s.work.Broadcast()
}

// bound bounds the bytes of the payloads that are loaded one by one and handled at a time; 0 is no bound.
func (s *scheduler) bound(bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.room.most = bytes
}

// stop hands out nothing more.
func (s *scheduler) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	if s.alarm != nil {
		s.alarm.Stop()
	}
	s.work.Broadcast()
}

// extend moves the time after which nothing is handed out.
func (s *scheduler) extend(deadline time.Time) { s.extendSince(s.ahead(time.Now()), deadline) }

// extendSince is extend, reckoned from a time at which the wall clock was so far ahead.
func (s *scheduler) extendSince(ahead time.Duration, deadline time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.aheadBefore, s.deadline = ahead, deadline
	s.work.Broadcast()
}

// known returns the messages in memory, by lane, that a read of these lanes, each from that id on, could find again.
func (s *scheduler) known(from map[int]int64) map[int][]dialect.Known {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := map[int][]dialect.Known{}
	add := func(e *entry) {
		ref := e.message.Ref
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

// between returns the ids in memory in a range.
func (s *scheduler) between(after, upTo int64) []int64 {
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

// inLane returns the number of messages of a lane in memory.
func (s *scheduler) inLane(lane int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.perLane[lane]
}

// runningLanes returns the lanes of messages that workers have.
func (s *scheduler) runningLanes() map[int]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	lanes := map[int]bool{}
	for _, e := range s.messages {
		if e.running {
			lanes[e.message.Ref.Lane] = true
		}
	}
	for e := range s.outlived {
		if e.running {
			lanes[e.message.Ref.Lane] = true
		}
	}
	return lanes
}

// size returns the number of messages in memory, and how many of them run.
func (s *scheduler) size() (all, running int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.messages) + len(s.outlived), s.running
}

// inFlight returns the number of running messages of each topic.
func (s *scheduler) inFlight() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := map[string]int{}
	for name, t := range s.topics {
		if t.running > 0 {
			counts[name] = t.running
		}
	}
	return counts
}
