package forwarder

import "time"

// Waiting returns how many functions wait for their slot.
func (c *GroupCommit) Waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.queue)
}

// Impatient makes the forwarder look soon for calls that do not return. Call it before Run.
func (f *Forwarder) Impatient(after time.Duration) { f.hangAfter, f.hangLook = after, after/3 }
