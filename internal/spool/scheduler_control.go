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
func (s *scheduler) extend(deadline time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadline = deadline
	s.work.Broadcast()
}

// known returns the ids in memory, by lane, that a read of these lanes, each from that id on, could find again.
func (s *scheduler) known(from map[int]int64) map[int][]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := map[int][]int64{}
	for id, e := range s.messages {
		ref := e.message.Ref
		if ref.State != dialect.StateReady || id > from[ref.Lane] {
			ids[ref.Lane] = append(ids[ref.Lane], id)
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

// size returns the number of messages in memory, and how many of them run.
func (s *scheduler) size() (all, running int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.messages), s.running
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
