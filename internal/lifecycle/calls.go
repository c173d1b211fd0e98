package lifecycle

import (
	"sync"

	postbox "github.com/postbox-go/watermill-postbox"
)

// Calls counts the calls of a component that may be closed while other goroutines use it. Its zero
// value is open.
type Calls struct {
	mu       sync.Mutex // guards closed
	closed   bool
	inFlight sync.WaitGroup // grows only while not closed
	closing  sync.Once
	err      error
}

// Begin begins a call; the caller must call End. After Close it returns [postbox.ErrClosed], and no
// call has begun.
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

// Close prevents further calls, waits for running ones, and then runs shut. It may be called any
// number of times, and concurrently: shut runs once, and each Close returns its error when it has
// ended.
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
