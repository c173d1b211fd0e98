package schedule

import (
	"math"
	"time"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// burstShare is the part of a second whose messages may start at once after a quiet time.
const burstShare = 10

// gate lets through what a limit allows to this process. The scheduler's mutex guards it.
type gate struct {
	limit   postbox.Limit
	topic   string  // of the gate of a topic
	key     int64   // hash of the key
	lane    int     // of that of a key
	bucket  *bucket // nil without PerSecond
	slots   int     // how many may run here at a time, with AtOnce
	running int     // batches; of a key, messages
	pending int     // messages of a key in the batch that is being made
	// inMemory is the number of messages of the topic or key in memory.
	inMemory int
	// closed: messages wait for the gate. It opens at the given time, or, if that is zero, when a message ends.
	closed  bool
	opens   time.Time
	at      int      // index in the heap of gates that open at a time
	waiting []*queue // of a key, set aside
	full    bool     // reads leave out the topic or key, see leaveout.go
}

func newGate(limit postbox.Limit) *gate { return &gate{limit: limit, at: nowhere} }

// slack evens out the rounding of the bucket's numbers.
const slack = 1e-9

// burst is the number of messages that a share may have saved up.
func burst(perSecond float64, batch int) int {
	return max(1, batch, int(math.Ceil(min(perSecond/burstShare, math.MaxInt32))))
}

// share gives the gate the part of its limit that belongs to these lanes. What is saved up in the
// bucket stays, up to the new share.
func (g *gate) share(now time.Time, held []int, batch int) {
	g.slots = 0
	for _, lane := range held {
		g.slots += slotsOf(lane, g.limit.AtOnce)
	}
	perSecond, most := g.limit.PerSecond*float64(len(held))/dialect.Lanes, 0
	if len(held) > 0 {
		most = burst(perSecond, batch)
	}
	switch {
	case g.limit.PerSecond == 0:
	case g.bucket == nil:
		g.bucket = emptyBucket(perSecond, most, now)
	default:
		g.bucket.change(now, perSecond, most)
	}
}

// slotsOf returns how many of n slots belong to a lane. The slots are dealt to the lanes in turn. If there are too few
// for that, the first lane has all of them, so that no lane is held without a slot: its holder works, and the others
// stand by.
func slotsOf(lane, n int) int {
	switch {
	case n >= dialect.Lanes:
		return (n + dialect.Lanes - 1 - lane) / dialect.Lanes
	case lane == 0:
		return n
	default:
		return 0
	}
}

// Alone reports whether only the holder of the first lane may work, since a limit has too few slots for all lanes.
func Alone(l postbox.Limits) bool {
	few := func(limit postbox.Limit) bool { return limit.AtOnce > 0 && limit.AtOnce < dialect.Lanes }
	for _, topic := range l.Topics {
		if few(topic) {
			return true
		}
	}
	return few(l.Total)
}

// admits returns how many of these messages may be handed out now. A gate that is nil limits nothing.
func (g *gate) admits(now time.Time, messages int) int {
	if g == nil {
		return messages
	}
	if g.exhausted() {
		return 0
	}
	if g.bucket != nil {
		messages = min(messages, int(g.bucket.tokensAt(now)+slack)-g.pending)
	}
	return max(messages, 0)
}

// soon is how many messages the limit lets go within a second, as far as it is one of messages a second. AtOnce does not count here: with too few
// slots the gate closes as soon as a worker tries to start a message.
func (g *gate) soon() float64 {
	if g.bucket == nil {
		return 0
	}
	return g.bucket.perSecond
}

// exhausted reports whether all slots are taken.
func (g *gate) exhausted() bool { return g.limit.AtOnce > 0 && g.running+g.pending >= g.slots }

// take counts a call with a number of messages.
func (g *gate) take(now time.Time, messages int) {
	if g == nil {
		return
	}
	g.running++
	if g.bucket != nil {
		g.bucket.take(now, messages)
	}
}

// leave counts the end of a call.
func (g *gate) leave() {
	if g != nil {
		g.running--
	}
}

// opensAt returns when this many messages are allowed by the bucket, zero if that is not known.
func (g *gate) opensAt(now time.Time, messages int) time.Time {
	if g.exhausted() || g.bucket == nil || g.bucket.perSecond == 0 {
		return time.Time{}
	}
	missing := float64(messages) - g.bucket.tokensAt(now)
	wait := missing / g.bucket.perSecond * float64(time.Second)
	return now.Add(time.Duration(min(max(wait, 0), float64(longest))) + time.Microsecond)
}

// longest is the longest time for which a gate stays closed without being looked at.
const longest = time.Hour

// gates is a heap of closed gates, the first one to open at its root.
type gates []*gate

// nowhere is the index of a gate that is not in the heap.
const nowhere = -1

func (h gates) Len() int           { return len(h) }
func (h gates) Less(i, j int) bool { return h[i].opens.Before(h[j].opens) }
func (h gates) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

// Push adds a gate; container/heap calls it.
func (h *gates) Push(x any) {
	g := x.(*gate) //nolint:forcetypeassert // the heap has nothing else
	g.at = len(*h)
	*h = append(*h, g)
}

// Pop removes the last gate; container/heap calls it.
func (h *gates) Pop() any {
	last := len(*h) - 1
	g := (*h)[last]
	(*h)[last], g.at = nil, nowhere
	*h = (*h)[:last]
	return g
}
