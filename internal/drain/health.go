package drain

import (
	"errors"
	"sync"
	"time"

	"github.com/postbox-go/watermill-postbox/health"
	"github.com/postbox-go/watermill-postbox/internal/tail"
)

// pulse is the health of a drainer, as it was last noted. It is safe for concurrent use.
type pulse struct {
	mu    sync.Mutex
	state health.State
	feed  *tail.Feed // while the drainer is idle: a sign of life of its server is one of the database
	deaf  bool       // the last read of messages failed; it belongs to the goroutine of Run
}

func (p *pulse) set(change func(s *health.State)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.state)
}

// Health returns the health of this drainer, without the name.
func (c *core) Health() health.State {
	c.pulse.mu.Lock()
	defer c.pulse.mu.Unlock()
	s := c.pulse.state
	if c.pulse.feed != nil {
		s.Answered = later(s.Answered, c.pulse.feed.Heard())
	}
	return s
}

// setFeed notes the feed of the log beside which the drainer is idle, or nil if it is not.
func (p *pulse) setFeed(feed *tail.Feed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.feed = feed
}

// enter notes the beginning of a phase.
func (c *core) enter(phase health.Phase) {
	c.pulse.set(func(s *health.State) { s.Phase, s.Turned = phase, time.Now() })
}

// errRunBroken is the error of a Run that did not return normally.
var errRunBroken = errors.New("Run panicked or ended its goroutine")

// ended notes the end of Run.
func (c *core) ended(err error) {
	c.configured.Meter.Holds(0, 0)
	c.pulse.set(func(s *health.State) { s.Phase, s.Err = health.Stopped, err })
}

// turned notes a turn of the loop.
func (c *core) turned() {
	c.pulse.set(func(s *health.State) { s.Turned = time.Now() })
}

// heard notes the answer to a read of messages, or the error.
func (c *core) heard(err error) {
	c.configured.Meter.Read(err)
	c.pulse.deaf = err != nil
	c.answered(err)
}

// heardSettings notes the answer to a read of the settings. It is no sign of health if messages
// cannot be read. It counts as a read of messages where none is wanted, in a pause or with a full
// memory.
func (c *core) heardSettings(err error, instead bool) {
	if instead || err != nil {
		c.configured.Meter.Read(err)
	}
	if err != nil || !c.pulse.deaf {
		c.answered(err)
	}
}

func (c *core) answered(err error) {
	c.pulse.set(func(s *health.State) {
		if s.Err = err; err == nil {
			s.Answered = time.Now()
		}
	})
}

// failed notes the error of a step.
func (c *core) failed(err error) { c.pulse.set(func(s *health.State) { s.Err = err }) }
