package spool

// ClosedKeys are the keys of which a message has not got through, so that the messages behind it must not either. Make it with make.
type ClosedKeys map[int64]bool

// Close closes the key of a message, if it has one.
func (c ClosedKeys) Close(m *Message) {
	if m.HasKey {
		c[m.KeyHash] = true
	}
}

// Has says whether the key of a message is closed.
func (c ClosedKeys) Has(m *Message) bool { return m.HasKey && c[m.KeyHash] }
