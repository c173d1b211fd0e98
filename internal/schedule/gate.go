package schedule

import (
	"math"
	"slices"
	"time"

	postbox "github.com/postbox-go/watermill-postbox"
)

const (
	// grantLife is how long what the database has granted of a rate may be used, and how much of
	// the rate a process asks for at a time.
	grantLife = 250 * time.Millisecond
	// saved is how much of a rate may be saved up while nothing is to do.
	saved = 500 * time.Millisecond
	// AskAgain is the pause after an answer that was less than a process can use.
	AskAgain = 50 * time.Millisecond
	// holdTime is how long a process keeps more than its share of the slots while it uses them.
	// Then it gives one back, and asks for none before yieldPause is over, so one that waits gets
	// it.
	holdTime, yieldPause = time.Second, 2 * AskAgain
	// leastAge is the part of grantLife from which on the pace of messages is known.
	leastAge = 16
)

// gate lets through what the database has granted this process of a limit: that of the spool, or of
// a topic. The scheduler's mutex guards it.
type gate struct {
	limit   postbox.Limit
	topic   string  // empty for that of the spool
	grants  []grant // of the rate, the oldest first
	slots   []int64 // those that this process may use
	stored  int     // how many name it in the database; it gives back the others
	running int     // calls
	// askAt is when to ask for tokens at the earliest, and slotsAt for slots.
	askAt, slotsAt time.Time
	busyAt         time.Time // when a call began or ended last
	heldUntil      time.Time // when the next slot is given back
	// closed: messages wait for the gate. need is how many tokens they wait for together, and 0 if
	// they wait for a slot, or a part of a batch waits, see repeat.go.
	closed   bool
	need     int
	inMemory int  // messages of the topic
	full     bool // reads leave out the topic, see leftout.go
}

// grant is a number of messages that could begin until a time, and how many of them still can.
type grant struct {
	given, tokens int
	until         time.Time
}

// tokensLeft returns the tokens that are left of the grants that are not over. pace is how many
// would be used within grantLife if it goes on as it did lately. A call that still has its slot
// tells nothing of the pace.
func (g *gate) tokensLeft(now time.Time) (tokens, pace int) {
	g.grants = slices.DeleteFunc(g.grants, func(of grant) bool { return !now.Before(of.until) })
	for _, of := range g.grants {
		tokens += of.tokens
		pace += of.given - of.tokens
	}
	if g.limit.MaxConcurrent > 0 {
		pace -= g.running
	}
	if len(g.grants) > 0 {
		age := max(grantLife-g.grants[0].until.Sub(now), grantLife/leastAge)
		pace = int(int64(pace) * int64(grantLife) / int64(age))
	}
	return tokens, pace
}

// low reports whether less than half of the latest grant is left.
func (g *gate) low(tokens int) bool {
	last := len(g.grants) - 1
	return last < 0 || tokens <= g.grants[last].given/2
}

// spend takes a token for each message.
func (g *gate) spend(messages int) {
	for i := range g.grants {
		part := min(messages, g.grants[i].tokens)
		g.grants[i].tokens -= part
		messages -= part
	}
}

// free returns how many more calls may run.
func (g *gate) free() int {
	if g == nil || g.limit.MaxConcurrent == 0 {
		return math.MaxInt
	}
	return max(len(g.slots)-g.running, 0)
}

// admits returns how many of these messages may be handed out now, in one call. A gate that is nil
// limits nothing.
func (g *gate) admits(now time.Time, messages int) int {
	switch {
	case g == nil:
		return messages
	case g.free() == 0:
		return 0
	case g.limit.PerSecond == 0:
		return messages
	default:
		tokens, _ := g.tokensLeft(now)
		return min(messages, tokens)
	}
}

// take counts a call with a number of messages.
func (g *gate) take(now time.Time, messages int) {
	if g != nil {
		g.running++
		g.busyAt = now
		g.spend(messages)
	}
}

// release counts the end of a call. If this process has more than its share of the slots for long
// enough, it gives this one back.
func (g *gate) release(now time.Time, members int) {
	g.running--
	g.busyAt = now
	if members > 1 && len(g.slots) > max(g.limit.MaxConcurrent/members, g.running) && !now.Before(g.heldUntil) {
		g.slots = g.slots[1:]
		g.heldUntil, g.slotsAt = now.Add(holdTime), now.Add(yieldPause)
	}
}

// Ask is what a process wants from the database for a limit, and the answer.
type Ask struct {
	gate  *gate // nil if the limit is gone
	Topic string
	Limit postbox.Limit
	// Most is how many messages of a rate it can use, and Least how many it can use at least; 0
	// asks for none.
	Most, Least int
	Slots       int     // it wants so many more
	Held        []int64 // slots that it keeps

	Tokens int           // so many messages may begin
	Wait   time.Duration // when to ask again, if these are fewer than it can use
	Got    []int64       // slots that it has taken
	Stored int           // how many slots name it now
}

// Granted returns how many messages a rate lets begin, given the database's clock and until when it
// was used up, in microseconds. This is the generic cell rate algorithm of ATM. With them it is
// used up until another time. If there are none, wait is how long to wait for them.
func (a Ask) Granted(free, now int64) (tokens int, until int64, wait time.Duration) {
	step := 1e6 / a.Limit.PerSecond
	longest := math.Ceil(max(float64(saved.Microseconds()), step*float64(a.Least))) // of what may be saved up
	unused := float64(now - free)
	if unused < -longest { // the clock was set back
		unused = longest
	}
	unused = min(unused, longest)
	const rounding = 1e-6
	there := int(max(unused/step+rounding, 0))
	if there < a.Least {
		return 0, free, time.Duration((step*float64(a.Least) - unused) * float64(time.Microsecond))
	}
	tokens = min(there, a.Most)
	return tokens, now - int64(unused) + int64(math.Ceil(step*float64(tokens))), 0
}

// ask returns what the gate needs, if so many calls with so many messages can begin, and when: the
// zero time if it waits for nothing. Tokens are for messages that have a slot now, or soon at the
// recent pace: others would lose them. A gate that is idle gives its slots back.
func (g *gate) ask(now time.Time, calls, messages, haveSlot int) (a Ask, at time.Time) {
	due := func(time time.Time) bool {
		if at.IsZero() || time.Before(at) {
			at = time
		}
		return !now.Before(time)
	}
	a = Ask{gate: g, Topic: g.topic, Limit: g.limit}
	if perSecond := g.limit.PerSecond; perSecond > 0 && (g.need > 0 || messages > 0) {
		tokens, pace := g.tokensLeft(now)
		most := max(int(perSecond*grantLife.Seconds()), g.need, 1)
		wanted := min(max(haveSlot, pace, g.need), most)
		if (tokens < g.need || wanted > tokens && g.low(tokens)) && due(later(g.askAt, now)) {
			a.Most, a.Least = wanted-tokens, max(g.need-tokens, 1)
		}
	}
	if g.closed && g.free() == 0 && calls > 0 && len(g.slots) < g.limit.MaxConcurrent && due(later(g.slotsAt, now)) {
		a.Slots = min(calls, g.limit.MaxConcurrent-len(g.slots))
	}
	if len(g.slots) > g.running && (calls < 0 || calls == 0 && due(later(g.busyAt.Add(AskAgain), now))) {
		g.slots = g.slots[:max(g.running, 0)]
	}
	if len(g.slots) < g.stored {
		due(now)
	}
	a.Held = g.slots
	return a, at
}

// later returns the later one of two times.
func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
