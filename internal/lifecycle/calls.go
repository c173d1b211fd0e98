package lifecycle

import (
	"sync"

	postbox "github.com/postbox-go/watermill-postbox"
)

// Calls are those of something that is closed while others use it. Its zero value is open.
type Calls struct {
	mu       sync.Mutex // guards closed
	closed   bool
	inFlight sync.WaitGroup // grows only while not closed
	closing  sync.Once
	err      error
}

// Begin begins a call, for which End must be called. After Close it returns [postbox.ErrClosed], and there is no call.
func (c *Calls) Begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return postbox.ErrClosed
	}
	c.inFlight.Add(1)
	return nil
}

// End ends a call.
func (c *Calls) End() { c.inFlight.Done() }

// Close lets no further call begin, waits for those in flight, and then runs shut. It may be called any number of times, and
// concurrently: shut runs once, and each call returns its error when it has ended.
func (c *Calls) Close(shut func() error) error {
	c.closing.Do(func() {
		c.mu.Lock()
		c.closed = true
		c.mu.Unlock()
		c.inFlight.Wait()
		c.err = shut()
	})
	return c.err
}
