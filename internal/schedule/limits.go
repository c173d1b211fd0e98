package schedule

import (
	"container/heap"
	"maps"
	"math"
	"slices"
	"time"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// limits are the limits of a spool as far as they concern this process. Its share of a limit follows from the lanes that
// it holds: each lane has a part of the rate, and some of the slots. So the shares of all processes never add up to more
// than the limit, since a lane has one holder at a time. The limit of a key needs no shares, since all messages of a key
// are in one lane.
//
// Messages that a limit holds up wait at its gate: all of them at that of the spool, the messages of a topic at that of
// the topic, and those of a key at that of the key. The scheduler's mutex guards them.
type limits struct {
	set    postbox.Limits
	batch  int               // size of a gathered batch, which needs as many tokens; 0 if batches are not gathered
	held   map[int]time.Time // lanes of this process, with the time since which they count
	total  *gate             // nil if there is none
	topics map[string]*gate
	keys   map[string]*gate
	// prune is the number of keys from which on those are forgotten that need no memory. It is at least few. If most of the
	// others have no message in memory, all of these are forgotten. forgot is when all had to be
	// forgotten that had no message in memory: a key that is new starts with a bucket that was empty at that time.
	few, most, prune int
	forgot           time.Time
	timed            gates // closed gates that open at a time
	// crowd are the gates of topics and keys that are full, have been closed since the last decision what to leave out, or have many messages in memory.
	crowd map[*gate]struct{}
	many  int // see leaveout.go
	// beside are the messages of each gate that lost workers had at that decision.
	beside map[*gate]int
	// left are the gates that reads leave out, and known is the number of the crowd when that was decided. When room is made,
	// share is the number of messages that each of them keeps. cramped is set if the memory was full since then.
	left         map[*gate]struct{}
	known, share int
	cramped      bool
	alarm        *time.Timer
}

// mostKeys is the number of keys without a message in memory whose buckets are remembered. It takes about 10 MB.
const mostKeys = 50_000

// fewKeys is the number of keys from which on it pays to forget.
const fewKeys = 1000

// SetLimits replaces the limits. All buckets begin empty. Call it again with the lanes of this process, see
// [Scheduler.Share].
func (s *Scheduler) SetLimits(set postbox.Limits) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.limits
	if old == nil && set.None() || old != nil && old.set.Equal(set) {
		return
	}
	held := map[int]time.Time{}
	if old != nil {
		held = old.held
		s.openAll()
		for _, g := range old.keys {
			s.offerSome(g, len(g.waiting))
		}
		old.stop()
	}
	s.limits = nil
	if !set.None() {
		s.limits = &limits{
			set: set, held: held, topics: map[string]*gate{}, keys: map[string]*gate{},
			many: math.MaxInt, few: fewKeys, most: mostKeys, prune: fewKeys, crowd: map[*gate]struct{}{},
		}
		s.limits.begin(s)
	}
	s.adopt()
	s.work.Broadcast()
}

// begin makes the gates.
func (l *limits) begin(s *Scheduler) {
	if s.gather != nil {
		l.batch = s.batchSize
	}
	l.forgot = time.Now()
	if !l.set.Total.None() {
		l.total = newGate(l.set.Total)
	}
	for name, limit := range l.set.Topics {
		if !limit.None() {
			g := newGate(limit)
			g.topic = name
			l.topics[name] = g
		}
	}
	l.reshare(l.forgot)
}

// adopt counts what is in memory and what runs already at the gates of new limits.
func (s *Scheduler) adopt() {
	now := time.Now()
	count := func(e *Entry) {
		e.queue.gate = nil
		if s.limits == nil {
			return
		}
		s.enter(e, now)
		if !e.running {
			return
		}
		if g := e.queue.gate; g != nil {
			g.running++
		}
		if !e.Begun.IsZero() { // the first message of a batch
			for _, g := range []*gate{s.limits.total, s.limits.topics[e.Message.Topic]} {
				if g != nil {
					g.running++
				}
			}
		}
	}
	for _, e := range s.messages {
		count(e)
	}
	for e := range s.outlived {
		count(e)
	}
}

// Share sets which lanes count for the share of this process: those that it holds and does not give away.
func (s *Scheduler) Share(lanes []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.limits
	if l == nil || slices.Equal(lanes, slices.Sorted(maps.Keys(l.held))) {
		return
	}
	now := time.Now()
	held := make(map[int]time.Time, len(lanes))
	for _, lane := range lanes {
		since, before := l.held[lane]
		if !before {
			since = now
		}
		held[lane] = since
	}
	l.restart(held, now)
	l.held = held
	l.reshare(now)
	s.openAll()
	s.work.Broadcast()
}

// restart empties the buckets of keys whose lanes have come or gone: another process may have used them.
func (l *limits) restart(held map[int]time.Time, now time.Time) {
	maps.DeleteFunc(l.keys, func(_ string, g *gate) bool {
		_, before := l.held[g.lane]
		if _, after := held[g.lane]; before && after {
			return false
		}
		if g.bucket != nil {
			g.bucket = emptyBucket(g.bucket.perSecond, g.bucket.most, now)
		}
		return g.inMemory == 0
	})
}

// reshare gives the gates their share of the lanes.
func (l *limits) reshare(now time.Time) {
	held := slices.Sorted(maps.Keys(l.held))
	if l.total != nil {
		l.total.share(now, held, l.batch)
	}
	for _, g := range l.topics {
		g.share(now, held, l.batch)
	}
}

// Lose empties the buckets: lanes were lost, and another process may have used their share since.
func (s *Scheduler) Lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.limits
	if l == nil {
		return
	}
	now := time.Now()
	for _, g := range append(slices.Collect(maps.Values(l.topics)), l.total) {
		if g != nil && g.bucket != nil {
			g.bucket = emptyBucket(g.bucket.perSecond, g.bucket.most, now)
		}
	}
}

// Spares reports whether all that runs has a slot if only these lanes are kept.
func (s *Scheduler) Spares(kept []int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.limits
	if l == nil {
		return true
	}
	enough := func(g *gate) bool {
		if g == nil || g.limit.AtOnce == 0 {
			return true
		}
		slots := 0
		for _, lane := range kept {
			slots += slotsOf(lane, g.limit.AtOnce)
		}
		return g.running <= slots
	}
	for _, g := range l.topics {
		if !enough(g) {
			return false
		}
	}
	return enough(l.total)
}

// enter counts a message in memory at the gates of its topic and key.
func (s *Scheduler) enter(e *Entry, now time.Time) {
	l := s.limits
	if g := l.topics[e.Message.Topic]; g != nil {
		l.count(g)
	}
	if e.Message.Key == "" || l.set.EachKey.None() {
		return
	}
	g := l.keys[e.Message.Key]
	if g == nil {
		g = l.newKey(e.Message, now)
	}
	e.queue.gate = g
	l.count(g)
}

// count counts a message in memory. A gate may hold up messages before a worker has tried to start one, if they are more than its
// limit lets go within a second.
func (l *limits) count(g *gate) {
	g.inMemory++
	if n := l.inMemory(g); n >= l.many && float64(n) > g.soon() {
		l.crowd[g] = struct{}{}
	}
}

// keyOf returns under which key a message is in order with others. In a topic with a limit, a key has an order of its own:
// messages of the key in other topics do not wait for those that the limit holds up. That is so, too, when reads leave
// out the topic.
func (l *limits) keyOf(m *spool.Message) orderOf {
	if l.topics[m.Topic] != nil {
		return orderOf{topic: m.Topic, key: m.Key}
	}
	return orderOf{key: m.Key}
}

// newKey returns a gate for a key that is not remembered. Its bucket was empty at the latest when the lane came here.
func (l *limits) newKey(m *spool.Message, now time.Time) *gate {
	l.forget(now)
	g := newGate(l.set.EachKey)
	g.key, g.lane = m.KeyHash, m.Ref.Lane
	g.slots = g.limit.AtOnce
	if perSecond := g.limit.PerSecond; perSecond > 0 {
		since, held := l.held[m.Ref.Lane]
		if !held {
			since = now
		}
		if since.Before(l.forgot) {
			since = l.forgot
		}
		g.bucket = emptyBucket(perSecond, burst(perSecond, 0), since)
	}
	l.keys[m.Key] = g
	return g
}

// forget removes keys without a message in memory: those whose buckets are full, and all if these are not enough.
func (l *limits) forget(now time.Time) {
	if len(l.keys) < l.prune {
		return
	}
	idle := 0
	maps.DeleteFunc(l.keys, func(_ string, g *gate) bool {
		full := g.bucket == nil || g.bucket.tokensAt(now) >= float64(g.bucket.most)
		if g.inMemory == 0 && !full {
			idle++
		}
		return g.inMemory == 0 && full
	})
	if idle > l.most {
		maps.DeleteFunc(l.keys, func(_ string, g *gate) bool { return g.inMemory == 0 })
		l.forgot = now
	}
	l.prune = max(2*len(l.keys), l.few)
}

// exit counts a message that leaves the memory.
func (s *Scheduler) exit(e *Entry) {
	if g := s.limits.topics[e.Message.Topic]; g != nil {
		g.inMemory--
	}
	if g := e.queue.gate; g != nil {
		g.inMemory--
	}
}

// wait sets the alarm for the first gate that opens at a time.
func (s *Scheduler) wait() {
	l := s.limits
	l.stop()
	if len(l.timed) > 0 {
		l.alarm = time.AfterFunc(time.Until(l.timed[0].opens), func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.gather != nil {
				s.work.Broadcast()
				return
			}
			s.work.Signal() // a worker that takes a batch wakes the next one
		})
	}
}

// stop ends the alarm.
func (l *limits) stop() {
	if l.alarm != nil {
		l.alarm.Stop()
		l.alarm = nil
	}
}

// shut lets messages wait until the gate allows this number of them.
func (s *Scheduler) shut(g *gate, now time.Time, messages int) {
	if g.closed {
		return
	}
	g.closed = true
	if s.limits.cramped && g != s.limits.total {
		s.limits.cramped = false
		s.Signal()
	}
	if g.opens = g.opensAt(now, messages); !g.opens.IsZero() {
		heap.Push(&s.limits.timed, g)
		if s.limits.timed[0] == g {
			s.wait()
		}
	}
}
