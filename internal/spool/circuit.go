package spool

import (
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// CircuitConfig says what an outage of a topic is, and how often one is probed. Its owner has checked every field.
type CircuitConfig struct {
	FailuresInRow      int // different messages that must fail in a row, for reasons that nobody knows
	ProbeMin, ProbeMax time.Duration
}

// Circuits remember which topics have an outage. While one has, nothing is read for it; after a pause one
// message probes it, and the pause grows as long as that fails. It is safe for concurrent use.
type Circuits struct {
	config CircuitConfig
	again  func()

	mu     sync.Mutex
	topics map[string]*circuit
}

// circuit is the state of one topic that is not simply healthy.
type circuit struct {
	failed  map[string]struct{} // messages that failed in a row, for reasons that nobody knows
	open    bool
	probing bool
	timer   *time.Timer
	until   time.Time
	pauses  *backoff.ExponentialBackOff
}

// NewCircuits returns circuits that call again when messages for a topic are wanted again.
func NewCircuits(config CircuitConfig, again func()) *Circuits {
	return &Circuits{config: config, again: again, topics: map[string]*circuit{}}
}

// Allow says whether something may be published to the topic. In an outage it allows one probe at a time.
func (c *Circuits) Allow(topic string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	state := c.topics[topic]
	if state == nil || !state.open {
		return true
	}
	if state.probing || time.Now().Before(state.until) {
		return false
	}
	state.probing = true
	return true
}

// Excluded returns the topics for which nothing shall be read.
func (c *Circuits) Excluded() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var topics []string
	for topic, state := range c.topics {
		if state.open && (state.probing || time.Now().Before(state.until)) {
			topics = append(topics, topic)
		}
	}
	return topics
}

// Reached says that the broker answered for the topic: the outage, if there was one, is over.
func (c *Circuits) Reached(topic string) {
	c.mu.Lock()
	state := c.topics[topic]
	delete(c.topics, topic)
	c.mu.Unlock()
	if state != nil && state.open {
		state.timer.Stop()
		c.again()
	}
}

// Failed counts a message that failed for a reason that nobody knows. It reports true, and opens the circuit,
// when so many different ones have failed in a row that it must be an outage.
func (c *Circuits) Failed(topic, messageID string) (outage bool) {
	c.mu.Lock()
	state := c.state(topic)
	state.failed[messageID] = struct{}{}
	outage = state.open || len(state.failed) >= c.config.FailuresInRow
	c.mu.Unlock()
	if outage {
		c.Trip(topic)
	}
	return outage
}

// Trip opens the circuit of a topic, or keeps it open after a probe. It reports whether it was closed.
func (c *Circuits) Trip(topic string) (first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	state := c.state(topic)
	if state.open && !state.probing {
		return false // one of several that failed together
	}
	first = !state.open
	pause := state.pauses.NextBackOff()
	state.open, state.probing = true, false
	state.until = time.Now().Add(pause)
	state.timer = time.AfterFunc(pause, c.again)
	return first
}

func (c *Circuits) state(topic string) *circuit {
	state := c.topics[topic]
	if state == nil {
		pauses := backoff.NewExponentialBackOff()
		pauses.InitialInterval, pauses.MaxInterval = c.config.ProbeMin, c.config.ProbeMax
		state = &circuit{failed: map[string]struct{}{}, pauses: pauses}
		c.topics[topic] = state
	}
	return state
}

// Stop ends the timers.
func (c *Circuits) Stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, state := range c.topics {
		if state.timer != nil {
			state.timer.Stop()
		}
	}
}
