package schedule

import (
	"maps"
	"math"
	"slices"
	"time"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// limits are the limits of a spool as far as they concern this process. Messages that a limit holds
// up wait at its gate: all of them at that of the spool, and the messages of a topic at that of the
// topic. The drainer takes from the database what the gates ask for, see package drain, limits.go.
// The scheduler's mutex guards them.
type limits struct {
	set     postbox.Limits
	total   *gate // nil if there is none
	topics  map[string]*gate
	members int           // processes that share the spool
	granted chan struct{} // closed when the database has answered, for parts of batches: see repeat.go
	// crowd are the gates of topics that are full, have been closed since the last decision what to
	// leave out, or have many messages in memory.
	crowd map[*gate]struct{}
	many  int // see leftout.go
	// beside are the messages of each gate that lost workers had at that decision.
	beside map[*gate]int
	// leftOut are the gates that reads leave out, and known is the number of the crowd when that
	// was decided. When room is made, share is the number of messages that each of them keeps.
	// cramped is set if the memory was full since then.
	leftOut      map[*gate]struct{}
	known, share int
	cramped      bool
}

// SetLimits replaces the limits. Of a limit that has changed nothing is granted yet.
func (s *Scheduler) SetLimits(set postbox.Limits) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.limits
	if old == nil && spool.NoLimits(set) || old != nil && spool.SameLimits(old.set, set) {
		return
	}
	s.limits = nil
	if !spool.NoLimits(set) {
		s.limits = newLimits(set)
	}
	if old != nil {
		for _, g := range old.gates() {
			s.open(g)
			if like := s.limits.gate(g.topic); like != nil {
				like.slots = slices.DeleteFunc(g.slots, func(slot int64) bool { return slot > int64(like.limit.MaxConcurrent) })
			}
		}
		close(old.granted)
	}
	s.slotsUnsure = true
	s.adopt()
	s.work.Broadcast()
}

// newLimits makes the gates.
func newLimits(set postbox.Limits) *limits {
	l := &limits{set: set, topics: map[string]*gate{}, granted: make(chan struct{}), many: math.MaxInt, crowd: map[*gate]struct{}{}}
	if set.Total != (postbox.Limit{}) {
		l.total = &gate{limit: set.Total}
	}
	for name, limit := range set.Topics {
		if limit != (postbox.Limit{}) {
			l.topics[name] = &gate{limit: limit, topic: name}
		}
	}
	return l
}

// gates lists all gates in the order of their names.
func (l *limits) gates() (list []*gate) {
	if l.total != nil {
		list = append(list, l.total)
	}
	for _, name := range slices.Sorted(maps.Keys(l.topics)) {
		list = append(list, l.topics[name])
	}
	return list
}

// gate returns the gate of a topic, or that of the spool, if there is one.
func (l *limits) gate(topic string) *gate {
	switch {
	case l == nil:
		return nil
	case topic == "":
		return l.total
	default:
		return l.topics[topic]
	}
}

// adopt counts what is in memory and what runs already at the gates of new limits.
func (s *Scheduler) adopt() {
	if s.limits == nil {
		return
	}
	count := func(e *Entry) {
		s.enter(e)
		if !e.Begun.IsZero() && e.running { // the first message of a batch
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

// enter counts a message in memory at the gate of its topic. A gate may hold up messages before a
// worker has tried to start one, if they are more than its limit lets go within a second.
// MaxConcurrent does not count here: with too few slots the gate closes as soon as a worker tries
// to start a message.
func (s *Scheduler) enter(e *Entry) {
	l := s.limits
	g := l.topics[e.Message.Topic]
	if g == nil {
		return
	}
	g.inMemory++
	if n := l.inMemory(g); n >= l.many && float64(n) > g.limit.PerSecond {
		l.crowd[g] = struct{}{}
	}
}

// exit counts a message that leaves the memory.
func (s *Scheduler) exit(e *Entry) {
	if g := s.limits.topics[e.Message.Topic]; g != nil {
		g.inMemory--
	}
}

// keyOf returns under which key a message is in order with others. In a topic with a limit, a key
// has an order of its own: messages of the key in other topics do not wait for those that the limit
// holds up. That is so, too, when reads leave out the topic.
func (l *limits) keyOf(m *spool.Message) orderOf {
	if l.topics[m.Topic] != nil {
		return orderOf{topic: m.Topic, key: m.Key}
	}
	return orderOf{key: m.Key}
}

// Asks returns what the limits need from the database, and when; the zero time means that they wait
// for nothing. The caller answers with [Scheduler.Grant], and gives back all slots but those that
// are held.
func (s *Scheduler) Asks(members int) (asks []Ask, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.slotsUnsure {
		at = now
	}
	if s.limits == nil {
		return nil, at
	}
	s.limits.members = members
	for _, g := range s.limits.gates() {
		calls, messages := s.startable(g)
		slots := min(calls, g.free(), s.limits.total.free()) // of a topic, also in total
		a, next := g.ask(now, calls, messages, min(messages, slots*s.batchSize))
		if asks = append(asks, a); !next.IsZero() && (at.IsZero() || next.Before(at)) {
			at = next
		}
	}
	return asks, at
}

// startable returns how many calls, with how many messages, could begin at a gate if it let them;
// -1 after a stop.
func (s *Scheduler) startable(g *gate) (calls, messages int) {
	if s.stopped {
		return -1, 0
	}
	if t := s.topics.named[g.topic]; t != nil && g != s.limits.total {
		messages = len(t.ready)
	} else if g == s.limits.total {
		messages = len(s.payloads.waiting)
		for _, t := range s.topics.named {
			if !t.atGate {
				messages += len(t.ready)
			}
		}
	}
	if s.paused {
		messages = 0
	}
	calls = min(max(s.handed.most-s.handed.batches+s.hung.calls, 0), (messages+s.batchSize-1)/s.batchSize)
	return calls, min(messages, calls*s.batchSize)
}

// Grant gives the gates what the database has granted since it was asked.
func (s *Scheduler) Grant(asks []Ask, asked time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slotsUnsure = false
	now := time.Now()
	for _, a := range asks {
		if a.gate == nil {
			s.slotsUnsure = s.slotsUnsure || a.Stored > 0
			continue
		}
		s.grant(a, asked, now)
	}
}

// grant opens the gate if it lets enough through.
func (s *Scheduler) grant(a Ask, asked, now time.Time) {
	g := a.gate
	if a.Tokens < a.Most {
		g.askAt = now.Add(a.Wait)
	}
	if a.Tokens > 0 {
		// Two slow limits seldom let a message through in the same quarter of a second. From a slow
		// database, too, something arrives in time.
		life := max(grantLife, time.Duration(float64(time.Second)/g.limit.PerSecond))
		until := later(asked.Add(life), now.Add(AskAgain))
		g.grants = append(g.grants, grant{given: a.Tokens, tokens: a.Tokens, until: until})
	}
	if len(a.Got) < a.Slots {
		g.slotsAt = now.Add(AskAgain)
	}
	if len(g.slots) == 0 {
		g.heldUntil = now.Add(holdTime)
	}
	g.slots, g.stored = append(g.slots, a.Got...), a.Stored
	if tokens, _ := g.tokensLeft(now); g.need > 0 && tokens >= g.need {
		g.need = 0
		close(s.limits.granted)
		s.limits.granted = make(chan struct{})
	}
	if g.closed && g.need == 0 && g.free() > 0 {
		s.open(g)
	}
}

// DoubtSlots tells that a change of the slots was not answered: this process may hold others than
// it knows.
func (s *Scheduler) DoubtSlots() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slotsUnsure = true
}

// LoseSlots tells that this process holds no slots any more. It gives back those that name it.
func (s *Scheduler) LoseSlots() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slotsUnsure = true
	if s.limits != nil {
		for _, g := range s.limits.gates() {
			g.slots = nil
		}
	}
}

// limited reports whether the limit of the whole spool lets no batch through now, or keeps what it
// has for a part of an earlier one.
func (s *Scheduler) limited() bool {
	return s.limits != nil && (s.repeats > 0 || s.limits.total != nil && s.limits.total.closed)
}

// shut lets messages wait until the gate allows this number of them together.
func (s *Scheduler) shut(g *gate, messages int) {
	if g.free() > 0 {
		g.need = max(g.need, messages)
	}
	if !g.closed && s.limits.cramped && g != s.limits.total {
		s.limits.cramped = false
	}
	g.closed = true
	s.Signal()
}

// open lets those go on that waited at a gate.
func (s *Scheduler) open(g *gate) {
	g.closed, g.need = false, 0
	if t := s.topics.named[g.topic]; t != nil && t.atGate {
		t.atGate = false
		s.takeTurn(t)
		s.forget(t)
	}
	if s.gather != nil {
		s.work.Broadcast()
		return
	}
	s.work.Signal() // a worker that takes a batch wakes the next one
}

// admitted returns how many messages of a topic may be handed out now. It closes the gate that lets
// none through.
func (s *Scheduler) admitted(topic string) int {
	if s.limits == nil {
		return s.batchSize
	}
	l, now, g := s.limits, time.Now(), s.limits.topics[topic]
	if g.free() == 0 { // it waits for the slot first: a token would be over before that
		s.waitAt(s.topic(topic), g)
		return 0
	}
	most := l.total.admits(now, s.batchSize)
	if most == 0 {
		s.shut(l.total, 1)
		return 0
	}
	if most = g.admits(now, most); most == 0 {
		s.waitAt(s.topic(topic), g)
		return 0
	}
	s.askEarly(l.total, now)
	s.askEarly(g, now)
	return most
}

// askEarly lets the drainer ask before all that was granted is used, so that a fast process does
// not wait for each grant.
func (s *Scheduler) askEarly(g *gate, now time.Time) {
	if g != nil && len(g.grants) > 0 && !now.Before(g.askAt) {
		if tokens, _ := g.tokensLeft(now); g.low(tokens) {
			s.Signal()
		}
	}
}

// admitsBatch reports whether a gathered batch may be handed out now. If not, the gate of the
// spool, which has one topic, is closed until all its messages may.
func (s *Scheduler) admitsBatch(batch []*Entry) bool {
	if s.limits == nil || s.limits.total == nil || s.limits.total.admits(time.Now(), len(batch)) == len(batch) {
		return true
	}
	s.shut(s.limits.total, len(batch))
	return false
}

// waitAt lets the queues of a topic wait at its gate.
func (s *Scheduler) waitAt(t *topicQueue, g *gate) {
	if t.turn {
		s.topics.turns = slices.DeleteFunc(s.topics.turns, func(of *topicQueue) bool { return of == t })
	}
	t.turn, t.atGate = false, true
	s.shut(g, 1)
	s.limits.crowd[g] = struct{}{}
}

// takeLimits counts a batch that is handed out.
func (s *Scheduler) takeLimits(topic string, batch []*Entry) {
	if s.limits != nil && len(batch) > 0 {
		now := time.Now()
		s.limits.total.take(now, len(batch))
		s.limits.topics[topic].take(now, len(batch))
	}
}

// releaseLimits counts the end of a batch, and lets messages go on that wait for its slot.
func (s *Scheduler) releaseLimits(topic string) {
	if s.limits == nil {
		return
	}
	now := time.Now()
	for _, g := range []*gate{s.limits.total, s.limits.topics[topic]} {
		if g == nil {
			continue
		}
		g.release(now, s.limits.members)
		if len(g.slots) < g.stored || s.stopped && len(g.slots) > 0 {
			s.Signal()
		}
		if g.closed && g.need == 0 && g.free() > 0 {
			s.open(g)
		}
	}
}

// admitsLarge reports whether the limit of its topic lets the head of the first queue through that
// was set aside for want of room. If not, the queue waits for the limit, and comes back after that.
func (s *Scheduler) admitsLarge(q *queue) bool {
	if s.limits == nil {
		return true
	}
	topic := q.entries[0].Message.Topic
	g := s.limits.topics[topic]
	if g.admits(time.Now(), 1) > 0 {
		return true
	}
	s.takeAside()
	if t := s.topic(topic); !t.atGate {
		s.waitAt(t, g)
	}
	s.offer(q)
	return false
}
