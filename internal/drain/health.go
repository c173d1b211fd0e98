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
	log   *tail.Feed // while the drainer is idle: a sign of life of its server is one of the database
}

func (p *pulse) set(change func(s *health.State)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.state)
}

// Health returns the health of this drainer, without the name.
func (d *Drainer) Health() health.State {
	d.pulse.mu.Lock()
	defer d.pulse.mu.Unlock()
	s := d.pulse.state
	if d.pulse.log != nil {
		s.Answered = later(s.Answered, d.pulse.log.Heard())
	}
	return s
}

// rest notes that the drainer is idle beside a log, or that it is not.
func (p *pulse) rest(log *tail.Feed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log = log
}

// enter notes the beginning of a phase.
func (d *Drainer) enter(phase health.Phase) {
	d.pulse.set(func(s *health.State) { s.Phase, s.Turned = phase, time.Now() })
}

// errRunBroken is the error of a Run that did not return normally.
var errRunBroken = errors.New("Run panicked or ended its goroutine")

// ended notes the end of Run.
func (d *Drainer) ended(err error) {
	d.configured.Meter.Holds(0, 0)
	d.pulse.set(func(s *health.State) { s.Phase, s.Err = health.Stopped, err })
}

// turned notes a turn of the loop.
func (d *Drainer) turned() {
	d.pulse.set(func(s *health.State) { s.Turned = time.Now() })
}

// heard notes the answer to a read of messages, or the error.
func (d *Drainer) heard(err error) {
	d.configured.Meter.Read(err)
	d.deaf = err != nil
	d.answered(err)
}

// heardSettings notes the answer to a read of the settings. It is no sign of health if messages
// cannot be read.
func (d *Drainer) heardSettings(err error, paused bool) {
	if paused || err != nil {
		d.configured.Meter.Read(err)
	}
	if err != nil || !d.deaf {
		d.answered(err)
	}
}

func (d *Drainer) answered(err error) {
	d.pulse.set(func(s *health.State) {
		if s.Err = err; err == nil {
			s.Answered = time.Now()
		}
	})
}

// failed notes the error of a step.
func (d *Drainer) failed(err error) { d.pulse.set(func(s *health.State) { s.Err = err }) }
