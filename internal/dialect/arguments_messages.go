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

// CountStartParams identify a message whose start is counted.
type CountStartParams struct {
	Spool int64
	Ref
	Add        int
	MostStarts int // the number of starts that were counted before
}

// Burial holds the columns of a message's dead letter that the message itself does not have.
type Burial struct {
	Subject []byte
	Error   string
	Cause   Cause
}

// MoveFailuresParams are two subjects of failures.
type MoveFailuresParams struct{ From, To []byte }

// LoadPayload returns payload and metadata of a message.
func (s *Statements) LoadPayload(spool int64, r Ref) Query {
	return Query{Text: s.loadPayload, Args: []any{spool, r.State, r.Lane, r.ID, r.CreatedAt}}
}

// CountStart adds to the starts of a message.
func (s *Statements) CountStart(p CountStartParams) Query {
	return Query{Text: s.countStart, Args: []any{p.Add, p.Spool, p.State, p.Lane, p.ID, p.CreatedAt, p.MostStarts, p.Token}}
}

// Advance makes every message older by this number of microseconds, and brings its due time nearer
// by the same.
func (s *Statements) Advance(microseconds int64) Query {
	return Query{Text: s.advance, Args: []any{microseconds, microseconds}}
}

// MoveFailures moves the failures of one subject to another.
func (s *Statements) MoveFailures(p MoveFailuresParams) Query {
	return Query{Text: s.moveFailures, Args: []any{p.To, p.From}}
}
