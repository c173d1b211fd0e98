package dialect

// AsRead is a message with the state that a process has read. Statements that change it require the same attempts and
// starts, so that, run twice, they change it once.
type AsRead struct {
	Spool int64
	Ref
	Attempts int
	// LeastStarts and MostStarts bound the starts. The number may have decreased, if the message came back to the
	// previous holder of its lane.
	LeastStarts, MostStarts int
}

// RetryParams say how a message waits for its next attempt.
type RetryParams struct {
	AsRead
	Delay          int64 // from now
	AddAttempts    int
	TakeBackStarts int
}

// CountStartParams identify a message whose start is counted.
type CountStartParams struct {
	Spool int64
	Ref
	Add        int
	MostStarts int // the number of starts that were counted before
}

// BuryParams identify a message that becomes a dead letter, and give the reason.
type BuryParams struct {
	Spool int64
	Ref
	Burial
	LeastStarts int
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

// MovesToWaiting reports whether waiting messages have a table of their own. Then MoveToWaiting replaces Retry for a
// ready message.
func (s *Statements) MovesToWaiting() bool { return s.moveToWaiting != "" }

// Retry makes a message wait for its next attempt.
func (s *Statements) Retry(p RetryParams) Query {
	return Query{Text: s.retry, Args: p.args()}
}

// MoveToWaiting is Retry for a ready message, if MovesToWaiting is true. It returns how many messages it took from the
// ready ones, and how many arrived among the waiting ones.
func (s *Statements) MoveToWaiting(p RetryParams) Query {
	return Query{Text: s.moveToWaiting, Args: p.args()}
}

func (p RetryParams) args() []any {
	return []any{
		p.Delay, p.AddAttempts, p.TakeBackStarts,
		p.Spool, p.State, p.Lane, p.ID, p.CreatedAt, p.Attempts, p.LeastStarts, p.MostStarts, p.Token,
	}
}

// StandsToRetry returns the id of a message that Retry or MoveToWaiting should change, and has not changed.
func (s *Statements) StandsToRetry(m AsRead) Query {
	return Query{Text: s.standsToRetry, Args: []any{
		m.Spool, m.State, m.Lane, m.ID, m.CreatedAt, m.Attempts, m.LeastStarts, m.MostStarts, m.Token,
	}}
}

// CountStart adds to the starts of a message.
func (s *Statements) CountStart(p CountStartParams) Query {
	return Query{Text: s.countStart, Args: []any{p.Add, p.Spool, p.State, p.Lane, p.ID, p.CreatedAt, p.MostStarts, p.Token}}
}

// TakeBackStart takes back a counted start, in any state of the message and under any token of its lane.
func (s *Statements) TakeBackStart(spool int64, r Ref) Query {
	return Query{Text: s.takeBackStart, Args: []any{spool, r.Lane, r.ID, r.CreatedAt}}
}

// BuryMessage copies a message to the dead letters.
func (s *Statements) BuryMessage(p BuryParams) Query {
	return Query{Text: s.buryMessage, Args: []any{
		p.Subject, p.Error, int(p.Cause), p.Spool, p.State, p.Lane, p.ID, p.CreatedAt, p.LeastStarts, p.Token,
	}}
}

// Advance makes every message older by this number of microseconds, and brings its due time nearer by the same.
func (s *Statements) Advance(microseconds int64) Query {
	return Query{Text: s.advance, Args: []any{microseconds, microseconds}}
}

// MoveFailures moves the failures of one subject to another.
func (s *Statements) MoveFailures(p MoveFailuresParams) Query {
	return Query{Text: s.moveFailures, Args: []any{p.To, p.From}}
}
