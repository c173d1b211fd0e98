package spool

// ClosedKeys are the keys whose later messages must wait, because an earlier message is not done.
type ClosedKeys map[string]bool

// Close closes the key of a message, if it has one.
func (c ClosedKeys) Close(m *Message) {
	if m.HasKey {
		c[m.Key] = true
	}
}

// Has says whether the key of a message is closed.
func (c ClosedKeys) Has(m *Message) bool { return m.HasKey && c[m.Key] }
