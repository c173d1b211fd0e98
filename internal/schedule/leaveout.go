package schedule

import (
	"cmp"
	"slices"
)

// mostLeftOut is the number of keys that a read leaves out at most, since each is an argument of the read.
const mostLeftOut = 200

// LeftOut are topics and keys that reads leave out, since a limit holds them up and enough of their messages are in memory.
// So they do not fill the memory, and others go on.
type LeftOut struct {
	Topics []string
	Keys   []int64 // their hashes
}

// manyShare is how many times the messages that may wait for limits one topic or key may have in memory before it is known
// whether its limit holds it up: the first reads may bring many before one is handed out.
const manyShare = 2

// LeftOut returns what to leave out now, if so many messages may wait for limits in memory. The topics and keys that wait
// share this number. One that is left out is read again when half of its share is left.
func (s *Scheduler) LeftOut(messages int) (left LeftOut) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.limits == nil {
		return left
	}
	crowd := s.limits.crowd
	s.limits.many = manyShare * messages
	share := max(messages/max(len(crowd), 1), 1)
	var full []*gate
	for g := range crowd {
		if g.full {
			g.full = g.inMemory > share/2
		} else {
			g.full = g.closed && g.inMemory >= share || g.inMemory >= s.limits.many
		}
		switch {
		case g.full:
			full = append(full, g)
		case !g.closed:
			delete(crowd, g)
		}
	}
	slices.SortFunc(full, func(a, b *gate) int {
		return cmp.Or(cmp.Compare(b.inMemory, a.inMemory), cmp.Compare(a.key, b.key), cmp.Compare(a.topic, b.topic))
	})
	for _, g := range full {
		switch {
		case g.topic != "":
			left.Topics = append(left.Topics, g.topic)
		case len(left.Keys) < mostLeftOut:
			left.Keys = append(left.Keys, g.key)
		}
	}
	slices.Sort(left.Topics)
	slices.Sort(left.Keys)
	return left
}

// HeldUp are the numbers of messages in memory that wait for a limit.
type HeldUp struct{ Total, Topics, Keys int }

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
	for _, t := range s.topics {
		switch {
		case t.held:
			now.Topics += count(t.ready)
		case l.total != nil && l.total.closed:
			now.Total += count(t.ready)
		}
	}
	for _, g := range l.keys {
		now.Keys += count(g.waiting)
	}
	return now
}
