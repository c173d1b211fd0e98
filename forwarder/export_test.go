package forwarder

// InLine is how many wait for their turn.
func (c *GroupCommit) InLine() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.line)
}
