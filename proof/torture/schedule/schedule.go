// Package schedule lays down what will go wrong in a torture run, and when. It follows from the
// seed alone: the same seed gives the same faults at the same instants, whatever the processes do
// meanwhile.
package schedule

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Kind is a kind of fault.
type Kind string

// The kinds.
const (
	// Kill is SIGKILL to a process, which is started again.
	Kill Kind = "kill"
	// Pause is SIGSTOP to a process, and SIGCONT after its leases are over.
	Pause Kind = "pause"
	// Suspend is a pause during which the monotonic clock of the process stands still, as that of a
	// virtual machine does that is paused.
	Suspend Kind = "suspend"
	// Restart is SIGTERM to a process, a clean stop, and a start.
	Restart Kind = "restart"
	// Clock restarts a process with a clock that is hours off.
	Clock Kind = "clock"
	// Pool restarts a process with a pool of one or two connections.
	Pool Kind = "pool"
	// Terminate ends connections on the side of the database.
	Terminate Kind = "terminate"
	// Crash stops the database like a crash, Shutdown in order; both start it again.
	Crash    Kind = "crash"
	Shutdown Kind = "shutdown"
	// Rabbit and Kafka stop the broker, by a crash or in order, and start it again.
	Rabbit Kind = "rabbitmq"
	Kafka  Kind = "kafka"
	// Cut ends the connections of a process to a service, and refuses new ones for a while.
	Cut Kind = "cut"
	// Slow delays what a process and a service say to each other.
	Slow Kind = "slow"
	// HalfOpen swallows what they say, and closes nothing.
	HalfOpen Kind = "half-open"
	// Log ends the connection that sends the log of the database to a forwarder, and with it the
	// slot, as often as one is made.
	Log Kind = "log"
	// Hold keeps an unrelated transaction open.
	Hold Kind = "hold"
	// Hog takes all the connections that the database has left.
	Hog Kind = "hog"
	// Repeat publishes old messages to the brokers again, in any order.
	Repeat Kind = "repeat"
	// Failover promotes a standby that lags: what the old primary confirmed last is lost.
	Failover Kind = "failover"
	// FailoverSync promotes a synchronous standby: nothing is lost.
	FailoverSync Kind = "failover-sync"
	// Restore takes the database back to an earlier time while the processes run.
	Restore Kind = "restore"
)

// weights say how often each kind comes, compared with the others.
var weights = []struct {
	kind   Kind
	weight int
}{
	{Kill, 6},
	{Pause, 4},
	{Suspend, 3},
	{Restart, 2},
	{Clock, 2},
	{Pool, 2},
	{Terminate, 5},
	{Crash, 1},
	{Shutdown, 1},
	{Rabbit, 1},
	{Kafka, 1},
	{Cut, 4},
	{Slow, 3},
	{HalfOpen, 4},
	{Log, 4},
	{Hold, 2},
	{Hog, 1},
	{Repeat, 4},
	{Failover, 2},
	{FailoverSync, 1},
	{Restore, 1},
}

// Kinds returns all kinds.
func Kinds() []Kind {
	kinds := make([]Kind, len(weights))
	for n, w := range weights {
		kinds[n] = w.kind
	}
	return kinds
}

// Parse reads kinds with commas between them. An empty text means all.
func Parse(text string) ([]Kind, error) {
	if text == "" {
		return Kinds(), nil
	}
	var kinds []Kind
	for name := range strings.SplitSeq(text, ",") {
		kind := Kind(strings.TrimSpace(name))
		if !slices.Contains(Kinds(), kind) {
			return nil, fmt.Errorf("fault %q is none of %s", kind, Kinds())
		}
		if !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	return kinds, nil
}

// Process is one that faults happen to.
type Process struct {
	Name string
	// Services that it speaks to, each over a wire.
	Services []string
}

// Fault is one thing that goes wrong.
type Fault struct {
	Kind Kind
	// At is when, counted from the beginning, and For how long.
	At, For time.Duration
	// Process is the process it happens to, if it happens to one, and Service the other end of its
	// wire.
	Process, Service string
	// Immediate stops a service like a crash.
	Immediate bool
	// Skew is how far the clock is off, for Clock.
	Skew time.Duration
	// Connections is the size of the pool, for Pool.
	Connections int
	// Share of the connections is ended, for Terminate.
	Share float64
	// Number of messages, for Repeat.
	Number int
	// Delay of each piece of data, for Slow.
	Delay time.Duration
}

// String tells the fault in a few words.
func (f Fault) String() string {
	words := []string{string(f.Kind)}
	if f.Process != "" {
		words = append(words, f.Process)
	}
	if f.Service != "" {
		words = append(words, "<->", f.Service)
	}
	switch f.Kind {
	case Rabbit, Kafka:
		words = append(words, map[bool]string{true: "immediate", false: "fast"}[f.Immediate])
	case Clock:
		words = append(words, fmt.Sprintf("by %+.1f h", f.Skew.Hours()))
	case Pool:
		words = append(words, fmt.Sprintf("of %d", f.Connections))
	case Terminate:
		words = append(words, fmt.Sprintf("%.0f%%", f.Share*100))
	case Slow:
		words = append(words, "by "+f.Delay.String())
	case Repeat:
		words = append(words, strconv.Itoa(f.Number))
	default: // the kind says it all
	}
	if f.For > 0 {
		words = append(words, "for "+f.For.String())
	}
	return strings.Join(words, " ")
}

const (
	// pace is the mean time from one fault to the next.
	pace = 1100 * time.Millisecond
	// peace is the least time from one fault that stops a whole service to the next: where nothing
	// is under way, there is nothing for the others to hit. A broker takes some seconds to start.
	peace = 12 * time.Second
)

// stopsAll says whether a kind stops a whole service.
func stopsAll(kind Kind) bool {
	return ReplacesDatabase(kind) || slices.Contains([]Kind{Crash, Shutdown, Rabbit, Kafka, Hog}, kind)
}

// ReplacesDatabase says whether a kind puts another database server, or older data, in the place of
// the one that the processes know. It needs a cluster of the run's own.
func ReplacesDatabase(kind Kind) bool {
	return slices.Contains([]Kind{Failover, FailoverSync, Restore}, kind)
}

// New returns the faults of a run, in their order. Of each kind there is one before any kind comes
// again, among those that stop a whole service and among the others.
func New(seed uint64, duration time.Duration, kinds []Kind, processes []Process) ([]Fault, error) {
	if len(kinds) == 0 || len(processes) == 0 {
		return nil, errors.New("a schedule needs kinds of faults and processes")
	}
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // it has to be reproducible
	stops := newDeck(random, kinds, stopsAll)
	others := newDeck(random, kinds, func(kind Kind) bool { return !stopsAll(kind) })
	var faults []Fault
	stopped := -peace // when a service was stopped last
	for at := gap(random); at < duration; at += gap(random) {
		var kind Kind
		switch {
		case len(stops.kinds) > 0 && at >= stopped+peace && random.IntN(2) == 0:
			kind, stopped = stops.draw(random), at
		case len(others.kinds) > 0:
			kind = others.draw(random)
		default:
			continue // it is not yet time to stop something again
		}
		fault := draw(random, kind, processes)
		fault.At = at
		faults = append(faults, fault)
	}
	return faults, nil
}

// deck deals kinds: each once, and from then on each as often as its weight says, in any order.
type deck struct{ kinds, cards []Kind }

func newDeck(random *rand.Rand, kinds []Kind, belongs func(Kind) bool) *deck {
	d := &deck{}
	for _, kind := range kinds {
		if belongs(kind) {
			d.kinds = append(d.kinds, kind)
		}
	}
	d.cards = slices.Clone(d.kinds)
	d.shuffle(random)
	return d
}

func (d *deck) draw(random *rand.Rand) Kind {
	if len(d.cards) == 0 {
		for _, w := range weights {
			if slices.Contains(d.kinds, w.kind) {
				d.cards = append(d.cards, slices.Repeat([]Kind{w.kind}, w.weight)...)
			}
		}
		d.shuffle(random)
	}
	card := d.cards[0]
	d.cards = d.cards[1:]
	return card
}

func (d *deck) shuffle(random *rand.Rand) {
	random.Shuffle(len(d.cards), func(i, j int) { d.cards[i], d.cards[j] = d.cards[j], d.cards[i] })
}

func gap(random *rand.Rand) time.Duration {
	return between(random, pace/10, 2*pace-pace/10)
}

// between returns whole milliseconds, which are easier to read.
func between(random *rand.Rand, from, to time.Duration) time.Duration {
	return (from + time.Duration(random.Int64N(int64(to-from)))).Truncate(time.Millisecond)
}

func draw(random *rand.Rand, kind Kind, processes []Process) Fault {
	f := Fault{Kind: kind}
	if slices.Contains([]Kind{Kill, Pause, Suspend, Restart, Clock, Pool, Cut, Slow, HalfOpen}, kind) {
		p := processes[random.IntN(len(processes))]
		f.Process = p.Name
		if kind == Cut || kind == Slow || kind == HalfOpen {
			f.Service = p.Services[random.IntN(len(p.Services))]
		}
	}
	switch kind {
	case Pause, Suspend: // longer than a lease, mostly
		f.For = between(random, 2*time.Second, 8*time.Second)
	case Clock:
		f.Skew = between(random, time.Hour, 12*time.Hour) * time.Duration(1-2*random.IntN(2))
	case Pool:
		f.Connections = 1 + random.IntN(2)
	case Terminate:
		f.Share = []float64{0.1, 0.3, 1}[random.IntN(3)]
	case Crash, Shutdown, Rabbit, Kafka:
		f.For = between(random, 200*time.Millisecond, 4*time.Second)
		f.Immediate = kind == Crash || (kind != Shutdown && random.IntN(2) == 0)
	case Cut:
		f.For = between(random, 100*time.Millisecond, 3*time.Second)
	case Slow:
		f.For, f.Delay = between(random, time.Second, 5*time.Second), between(random, 10*time.Millisecond, 400*time.Millisecond)
	case HalfOpen:
		f.For = between(random, 2*time.Second, 8*time.Second)
	case Log:
		f.For = between(random, 100*time.Millisecond, 4*time.Second)
	case Hold:
		f.For = between(random, 5*time.Second, 15*time.Second)
	case Hog:
		f.For = between(random, 2*time.Second, 5*time.Second)
	case Repeat:
		f.Number = 20 + random.IntN(80)
	case Failover: // how long the standby lags
		f.For = between(random, 200*time.Millisecond, 1200*time.Millisecond)
	case FailoverSync:
		f.For = between(random, 200*time.Millisecond, 1500*time.Millisecond)
	case Restore: // how old the copy is
		f.For = between(random, time.Second, 5*time.Second)
	default: // an instant is all they have
	}
	return f
}
