package circuit

import (
	"sync"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Defaults for owners that do not let their users choose.
const (
	// FailuresInRow is a default for [Config.FailuresInRow].
	FailuresInRow = 5
	// OutageLimit is a default for [Config.OutageLimit].
	OutageLimit = 24 * time.Hour
)

// Config says what counts as an outage of a topic, and how often a topic in an outage is probed.
// The caller of [New] has checked every field.
type Config struct {
	FailuresInRow      int              // different messages that must fail in a row, for unknown reasons, to open the circuit
	ProbeMin, ProbeMax time.Duration    // the pause before a probe doubles from ProbeMin to ProbeMax
	Width              int              // maximum number of concurrent probes if unknown reasons opened the circuit; at least one
	OutageLimit        time.Duration    // if nothing succeeds for this time, unknown failures count; see blame.go
	Now                func() time.Time // nil: the clock of this process
	// Changed, if not nil, is called when an outage of a topic begins or ends, as
	// [Circuits.Outages] tells. It must not call the circuits.
	Changed func(topic string, open bool)
}

// Circuits remember which topics have an outage. During an outage no message of the topic is read.
// After a pause some messages probe the topic. The pause doubles as long as they fail, exactly,
// from ProbeMin to ProbeMax.
//
// If the reason is known to be an outage, one message probes at a time. If it is unknown, the
// messages themselves may be at fault, and a healthy message may wait behind many of them. So at
// first the number of probing messages doubles, and not the pause.
//
// Circuits also decide which side is at fault for an unknown failure: see blame.go. They are safe
// for concurrent use.
type Circuits struct {
	config Config
	again  func()

	mu       sync.Mutex
	topics   map[string]*circuit
	failures map[spool.Identity]*failure
	sequence int64     // counts calls and failures
	forgot   time.Time // when failures were last dropped to make room
}

// circuit is the state of one topic with an outage or remembered failures.
type circuit struct {
	topic  string
	open   bool
	opened time.Time     // or told of again
	since  int64         // number of the latest call that began before the circuit opened
	pause  time.Duration // the current or last pause
	until  time.Time     // end of the pause
	width  int           // number of probes after the pause
	left   int           // number of these probes that have not begun
	timer  *time.Timer
	hung   time.Time // when the latest of the calls began that had not returned when Hung was last called; zero if there is none

	told      bool        // of the outage, see endUntried
	untried   *time.Timer // until then a message would have tried whether it is over
	untriedAt time.Time   // when it ends

	running map[int64]time.Time // when the probes began that have not ended, by their starts

	blame      blame
	forgetting *time.Timer // see forget
}

// New returns circuits. They call again when messages of a topic may be read again.
func New(config Config, again func()) *Circuits {
	if config.Now == nil {
		config.Now = time.Now
	}
	return &Circuits{config: config, again: again, topics: map[string]*circuit{}, failures: map[spool.Identity]*failure{}}
}

// Call is one attempt to publish.
type Call struct {
	// Probe: the topic has an outage, and this call tries whether it is over. A probe should have
	// one message.
	Probe bool
	start int64
}

// Begin reports whether a message may be published to the topic now. The caller reports the result
// of an allowed call to [Circuits.Succeeded], [Circuits.Away] or [Circuits.Failed]. The code that
// begins a call defers [Circuits.End].
func (c *Circuits) Begin(topic string) (call Call, allowed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sequence++
	state := c.topics[topic]
	if state == nil || !state.open {
		return Call{start: c.sequence}, true
	}
	if state.closedAt(c.config.Now()) {
		return Call{}, false
	}
	state.left--
	state.running[c.sequence] = c.config.Now()
	return Call{Probe: true, start: c.sequence}, true
}

// Again begins a further call after one that was no probe.
func (c *Circuits) Again() Call {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sequence++
	return Call{start: c.sequence}
}

// closedAt reports whether no message may be published at the given time, because the circuit is
// open and no probe is due.
func (s *circuit) closedAt(now time.Time) bool {
	return s.open && (s.left == 0 || now.Before(s.until))
}

// Open reports whether the topic has an outage.
func (c *Circuits) Open(topic string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	state := c.topics[topic]
	return state != nil && state.open
}

// Outages returns the topics that have an outage, and since when. A topic without messages has
// none: see endUntried.
func (c *Circuits) Outages() map[string]time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	outages := map[string]time.Time{}
	for topic, state := range c.topics {
		if state.told {
			outages[topic] = state.opened
		}
	}
	return outages
}

// Tries returns when the next message may try a topic that has an outage, of those that wait.
func (c *Circuits) Tries() map[string]time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	tries := map[string]time.Time{}
	for topic, state := range c.topics {
		if state.told && c.config.Now().Before(state.until) {
			tries[topic] = state.until
		}
	}
	return tries
}

// Hurry ends the pauses before the next tries: an operator may know that an outage is over.
func (c *Circuits) Hurry() {
	c.mu.Lock()
	for _, state := range c.topics {
		state.until = time.Time{}
	}
	c.mu.Unlock()
	c.again()
}

// Excluded returns the topics whose messages must not be read.
func (c *Circuits) Excluded() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var topics []string
	now := c.config.Now()
	for topic, state := range c.topics {
		if state.closedAt(now) {
			topics = append(topics, topic)
		}
	}
	return topics
}

// Reached records that the destination works: an outage is over.
func (c *Circuits) Reached(topic string) {
	c.mu.Lock()
	closed := c.close(topic)
	c.forget(topic)
	c.mu.Unlock()
	if closed {
		c.again()
	}
}

// End ends a call. A probe may end without a result about the outage: the message was at fault, or
// a function of the user has panicked. Then another probe may take its
// place. Otherwise the topic would stay closed for ever.
func (c *Circuits) End(topic string, call Call) {
	if !call.Probe {
		return
	}
	c.mu.Lock()
	state := c.topics[topic]
	replace := state != nil && state.runs(call)
	if replace {
		delete(state.running, call.start)
		state.left++
		c.await(state, 0)
	}
	c.mu.Unlock()
	if replace {
		c.again()
	}
}

// runs reports whether the call is a probe without a result so far.
func (s *circuit) runs(call Call) bool {
	_, runs := s.running[call.start]
	return runs
}

// Away records a failure that is known to be an outage. It reports whether it is the first one of
// an outage that is told. If the call was a probe, it also returns how long its message waits, so
// that the next probe uses another one; otherwise 0.
func (c *Circuits) Away(topic string, call Call) (first bool, wait time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	state := c.state(topic)
	first = c.trip(state, call, 1)
	if call.Probe {
		wait = max(state.pause/2, time.Microsecond) // the message waits less than the pause, so that it can be the next probe if there is no other
	}
	return first, wait
}

// Hung records that calls of the topic do not return, and when the latest of them began. The
// circuit then allows one more call, as a probe, and closes when any of these calls succeeds. Then
// the same calls do not open it again. A probe that began before the given time hangs, too: if more
// is true, the circuit allows another one after a pause. Each probe that hangs costs the drainer a
// worker.
func (c *Circuits) Hung(topic string, latest, before time.Time, more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	state := c.state(topic)
	known := !latest.After(state.hung)
	if state.hung = latest; known && !state.open {
		return
	}
	c.tell(state)
	if !state.open {
		c.trip(state, Call{}, 1)
		state.since = 0
		return
	}
	for start, began := range state.running {
		if more && state.left == 0 && began.Before(before) {
			c.trip(state, Call{Probe: true, start: start}, 1)
		}
	}
}

// Returned records that all calls of [Circuits.Hung] have returned.
func (c *Circuits) Returned(topic string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	state := c.topics[topic]
	if state == nil {
		return
	}
	if state.hung = (time.Time{}); state.open {
		c.await(state, 0)
	}
	c.forget(topic)
}

// trip records a failure, and reports whether it is the first one of an outage that is told.
// Afterwards at most width probes may run at a time.
func (c *Circuits) trip(state *circuit, call Call, width int) (first bool) {
	if state.open && !state.runs(call) {
		return false // the call was running when the circuit opened
	}
	first = c.tell(state)
	switch {
	case !state.open:
		state.open, state.pause, state.width, state.since = true, c.config.ProbeMin, 1, c.sequence
	case len(state.running) > 1:
		delete(state.running, call.start)
		return first // other probes are running
	case state.width < width: // try more messages soon: a healthy one may be among them
		state.width = min(2*state.width, width)
	default:
		state.pause, state.width = min(2*state.pause, c.config.ProbeMax), width
	}
	state.left = state.width
	clear(state.running)
	state.until = c.config.Now().Add(state.pause)
	state.timer = time.AfterFunc(state.pause, c.again)
	c.await(state, state.pause)
	return first
}

// untriedPauses is for how many of the longest pauses probes are awaited after a pause, or after
// the time for which a message waits. The message of a probe that failed waits for one of them at
// most, unless its error asks for more.
const untriedPauses = 2

// await lets endUntried look after a wait, and the time in which a message would have begun a
// probe.
func (c *Circuits) await(state *circuit, wait time.Duration) {
	if state.untried != nil {
		state.untried.Stop()
	}
	now := c.config.Now()
	wait = max(wait, state.until.Sub(now)) + untriedPauses*c.config.ProbeMax
	state.untriedAt = now.Add(wait)
	state.untried = time.AfterFunc(wait, func() { c.endUntried(state) })
}

// Unread records that no messages can be read now, since the database is away. That none tries a
// topic then shows nothing about its outage.
func (c *Circuits) Unread() {
	c.mu.Lock()
	defer c.mu.Unlock()
	awaited := c.config.Now().Add(untriedPauses * c.config.ProbeMax)
	for _, state := range c.topics {
		if state.told && state.untriedAt.Before(awaited) {
			c.await(state, 0)
		}
	}
}

// endUntried ends what is told of an outage if no message has tried for long whether it is over:
// operators have buried or moved those that were there, or other processes have them. The circuit
// stays open, so that the next message is a probe, and it does not count as a failure if the topic
// is still away.
func (c *Circuits) endUntried(state *circuit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if state.told && len(state.running) == 0 && state.hung.IsZero() && !c.config.Now().Before(state.untriedAt) {
		state.told = false
		c.changed(state.topic, false)
	}
}

// tell tells of an outage, and reports whether it was not told of before. If a message fails long
// after the last one, the outage of then may have been over.
func (c *Circuits) tell(state *circuit) (first bool) {
	if state.told {
		return false
	}
	state.told, state.opened = true, c.config.Now()
	c.changed(state.topic, true)
	return true
}

// close ends an outage, and reports whether there was one.
func (c *Circuits) close(topic string) bool {
	state := c.topics[topic]
	if state == nil || !state.open {
		return false
	}
	state.timer.Stop()
	state.untried.Stop()
	if state.told {
		c.changed(topic, false)
	}
	state.open, state.left, state.told = false, 0, false
	clear(state.running)
	return true
}

func (c *Circuits) changed(topic string, open bool) {
	if c.config.Changed != nil {
		c.config.Changed(topic, open)
	}
}

func (c *Circuits) state(topic string) *circuit {
	state := c.topics[topic]
	if state == nil {
		state = &circuit{topic: topic, running: map[int64]time.Time{}}
		c.topics[topic] = state
	}
	return state
}

// forget drops the state of a topic that has nothing to remember. The proof of an outage is
// remembered for [recovery].
func (c *Circuits) forget(topic string) {
	state := c.topics[topic]
	if state == nil || state.open || !state.hung.IsZero() || state.blame.remembered > 0 || state.forgetting != nil {
		return
	}
	left := recovery - c.config.Now().Sub(state.blame.proved)
	if left <= 0 {
		delete(c.topics, topic)
		return
	}
	state.forgetting = time.AfterFunc(left, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		state.forgetting = nil
		c.forget(topic)
	})
}

// Stop ends the timers. It also ends all outages that were told. A call that returns later begins
// no new one, since nothing would end it.
func (c *Circuits) Stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, state := range c.topics {
		if state.told {
			c.changed(state.topic, false)
		}
		for _, timer := range []*time.Timer{state.timer, state.untried, state.forgetting} {
			if timer != nil {
				timer.Stop()
			}
		}
	}
	c.config.Changed = nil
}
