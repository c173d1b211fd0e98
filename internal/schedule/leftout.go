package schedule

import (
	"cmp"
	"slices"

	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// LimitedShare is the part of a page that may wait in memory for limits of topics. The rest of the
// memory is for messages that may go on.
const LimitedShare = 4

// manyShare bounds the messages in memory of a topic whose gate is open: twice as many as may wait
// for limits. An open gate says little, since it may close soon, or no worker has tried it yet.
const manyShare = 2

// LeftOut returns the topics that reads leave out now, with pages of this size: a limit holds them
// up, and enough of their messages are in memory. So they do not fill the memory, and others go on.
// The topics that wait, or have waited since the last call, share the messages that may wait for
// limits in memory. One that is left out is read again when half of its share is left. A limit that
// is far from being reached leaves nothing out, however many messages are in memory.
func (s *Scheduler) LeftOut(page int) (leftOut []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.limits
	if l == nil {
		return leftOut
	}
	l.beside = s.besideGates()
	crowd, messages := l.crowd, max(page/LimitedShare, 1)
	l.many, l.cramped = manyShare*messages, false
	share := max(messages/max(len(crowd), 1), 1)
	l.share, l.leftOut = share, map[*gate]struct{}{}
	for g := range crowd {
		if n := l.inMemory(g); g.full {
			g.full = n > share/2
		} else {
			g.full = g.closed && n >= share || n >= l.many && float64(n) > g.limit.PerSecond
		}
		switch {
		case g.full:
			leftOut = append(leftOut, g.topic)
			l.leftOut[g] = struct{}{}
		case !g.closed:
			delete(crowd, g)
		}
	}
	slices.Sort(leftOut)
	l.known = len(crowd)
	return leftOut
}

// besideGates returns how many messages of each topic lost workers have: see hung.go.
func (s *Scheduler) besideGates() map[*gate]int {
	counts := map[*gate]int{}
	for e := range s.hung.entries {
		if e.running {
			counts[s.limits.topics[e.Message.Topic]]++
		}
	}
	return counts
}

// inMemory is the number of messages of a topic that fill the memory: all but those that lost
// workers have. These wait for no limit, and may never come back.
func (l *limits) inMemory(g *gate) int { return g.inMemory - l.beside[g] }

// MakeRoom drops waiting messages of the topics that reads leave out, the newest first, until each
// has its share, and returns them. They are read again when their topic is. The drainer calls it
// when the memory is full. If other messages fill it, the drainer is told when a further topic
// begins to wait.
func (s *Scheduler) MakeRoom() (dropped []*spool.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.limits
	if l == nil {
		return nil
	}
	l.cramped = true
	if len(l.crowd) > l.known {
		s.Signal()
	}
	if len(l.leftOut) == 0 {
		return nil
	}
	concerned := map[*queue]struct{}{}
	for _, e := range l.overShare(s.messages) {
		q := e.queue
		last := len(q.entries) - 1
		if last < 0 || q.entries[last] != e || !l.isOverShare(e) { // it was handed out, or a message behind it stays
			continue
		}
		q.entries[last] = nil
		q.entries = q.entries[:last]
		s.remove(e)
		dropped, concerned[q] = append(dropped, e.Message), struct{}{}
	}
	s.dropEmpty(concerned)
	return dropped
}

// overShare returns the messages of topics that have more than their share in memory, the newest
// first.
func (l *limits) overShare(messages map[int64]*Entry) (list []*Entry) {
	for _, e := range messages {
		if l.isOverShare(e) {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, func(a, b *Entry) int { return cmp.Compare(b.Message.Ref.ID, a.Message.Ref.ID) })
	return list
}

// isOverShare reports whether the topic of a message is left out of reads, and has more than its
// share in memory.
func (l *limits) isOverShare(e *Entry) bool {
	g := l.topics[e.Message.Topic]
	_, leftOut := l.leftOut[g]
	return leftOut && l.inMemory(g) > l.share
}

// dropEmpty forgets those of these queues that have become empty, where they wait for a limit. They
// would take the turns of others when a gate opens.
func (s *Scheduler) dropEmpty(queues map[*queue]struct{}) {
	empty := func(q *queue) bool {
		_, concerned := queues[q]
		if !concerned || len(q.entries) > 0 {
			return false
		}
		q.offered = false
		s.forgetKey(q)
		return true
	}
	if len(queues) == 0 {
		return
	}
	for _, t := range s.topics.named {
		t.ready = slices.DeleteFunc(t.ready, empty)
	}
}

// HeldUp are the numbers of messages in memory that wait for a limit.
type HeldUp struct{ Total, Topics int }

// HeldUp returns how many messages wait for limits.
func (s *Scheduler) HeldUp() (now HeldUp) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.limits
	if l == nil {
		return now
	}
	count := func(queues []*queue) (messages int) {
		for _, q := range queues {
			messages += len(q.entries)
		}
		return messages
	}
	for _, t := range s.topics.named {
		switch {
		case t.atGate:
			now.Topics += count(t.ready)
		case l.total != nil && l.total.closed:
			now.Total += count(t.ready)
		}
	}
	return now
}
