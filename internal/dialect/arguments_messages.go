package dialect

// AsRead is a message as a process has read it. Statements that change it ask for the same attempts and starts, so that, run twice, they change it once.
type AsRead struct {
	Spool int64
	Ref
	Attempts int
	// LeastStarts and MostStarts bound the starts: they may have become fewer, when the message came back to the process that had its lane before.
	LeastStarts, MostStarts int
}

// RetryParams say how a message waits for its next attempt.
type RetryParams struct {
	AsRead
	Delay          int64 // from now
	AddAttempts    int
	TakeBackStarts int
}

// CountStartParams name a message whose start is counted.
type CountStartParams struct {
	Spool int64
	Ref
	Add        int
	MostStarts int // that were counted before
}

// BuryParams name a message that dies, and why it does.
type BuryParams struct {
	Spool int64
	Ref
	Burial
	LeastStarts int
}

// Burial is what the dead letter of a message says besides what the message has.
type Burial struct {
	Subject []byte
	Error   string
}

// MoveFailuresParams are two subjects of failures.
type MoveFailuresParams struct{ From, To []byte }

// LoadPayload returns payload and metadata of a message.
func (s *Statements) LoadPayload(spool int64, r Ref) Query {
	return Query{Text: s.loadPayload, Args: []any{spool, r.State, r.Lane, r.ID, r.CreatedAt}}
}

// MovesToWaiting says whether messages that wait have a table of their own, so that MoveToWaiting goes before Retry for a ready one.
func (s *Statements) MovesToWaiting() bool { return s.moveToWaiting != "" }

// Retry lets a message wait for its next attempt.
func (s *Statements) Retry(p RetryParams) Query {
	return Query{Text: s.retry, Args: p.args()}
}

// MoveToWaiting is Retry for a ready message, where MovesToWaiting says so. It returns how many it took from the ready ones, and how many arrived among
// those that wait.
func (s *Statements) MoveToWaiting(p RetryParams) Query {
	return Query{Text: s.moveToWaiting, Args: p.args()}
}

func (p RetryParams) args() []any {
	return []any{
		p.Delay, p.AddAttempts, p.TakeBackStarts,
		p.Spool, p.State, p.Lane, p.ID, p.CreatedAt, p.Attempts, p.LeastStarts, p.MostStarts, p.Token,
	}
}

// StandsToRetry returns the id of a message that Retry or MoveToWaiting is to change, and has not changed.
func (s *Statements) StandsToRetry(m AsRead) Query {
	return Query{Text: s.standsToRetry, Args: []any{
		m.Spool, m.State, m.Lane, m.ID, m.CreatedAt, m.Attempts, m.LeastStarts, m.MostStarts, m.Token,
	}}
}

// CountStart adds to the starts of a message.
func (s *Statements) CountStart(p CountStartParams) Query {
	return Query{Text: s.countStart, Args: []any{p.Add, p.Spool, p.State, p.Lane, p.ID, p.CreatedAt, p.MostStarts, p.Token}}
}

// TakeBackStart takes back a start that was counted, whatever state the message has by now and under whichever token its lane is held.
func (s *Statements) TakeBackStart(spool int64, r Ref) Query {
	return Query{Text: s.takeBackStart, Args: []any{spool, r.Lane, r.ID, r.CreatedAt}}
}

// BuryMessage copies a message to the dead letters.
func (s *Statements) BuryMessage(p BuryParams) Query {
	return Query{Text: s.buryMessage, Args: []any{
		p.Subject, p.Error, p.Spool, p.State, p.Lane, p.ID, p.CreatedAt, p.LeastStarts, p.Token,
	}}
}

// Advance makes every message older by so many microseconds, and lets so much less time pass until it is due.
func (s *Statements) Advance(microseconds int64) Query {
	return Query{Text: s.advance, Args: []any{microseconds, microseconds}}
}

// MoveFailures gives the failures of one subject to another one.
func (s *Statements) MoveFailures(p MoveFailuresParams) Query {
	return Query{Text: s.moveFailures, Args: []any{p.To, p.From}}
}
