package forwarder

import "time"

// InLine is how many wait for their turn.
func (c *GroupCommit) InLine() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.line)
}

// Impatient makes the forwarder look soon for calls that do not return. Call it before Run.
func (f *Forwarder) Impatient(after time.Duration) { f.hangAfter, f.hangLook = after, after/3 }
