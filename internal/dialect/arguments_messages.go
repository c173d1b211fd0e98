package dialect

// AsRead is a message with the state that a process has read. Statements that change it require the
// same attempts and starts, so that, run twice, they change it once.
type AsRead struct {
	Ref
	Attempts int
	// LeastStarts and MostStarts bound the starts. The number may have decreased, if the message
	// came back to the previous holder of its lane.
	LeastStarts, MostStarts int
}

// LoadPayload returns payload and metadata of a message.
func (s *Statements) LoadPayload(spool int64, r Ref) Query {
	return s.query("LoadPayload", args{"spool": spool, "state": r.State, "lane": r.Lane, "id": r.ID, "created_at": r.CreatedAt})
}
