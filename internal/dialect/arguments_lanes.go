package dialect

// The builders of the files arguments_*.go put the arguments of a statement into the order of its text, which all databases share. Numbers look alike to the
// driver, so those that could be swapped are fields with names. Times and durations are microseconds.

// Member is a process that shares the lanes of a spool with others.
type Member struct {
	Spool  int64
	Holder string
}

// JoinParams are what a member says of itself.
type JoinParams struct {
	Member
	InFlight string // the messages that it is handling, by topic, as JSON
	TTL      int64  // how long it counts as a member unless it says so again
}

// AcquireParams say which free lanes a member takes.
type AcquireParams struct {
	Member
	TTL   int64
	Later int64   // at least 1: so much later than the old token and the clock is the new token
	Limit int     // how many lanes, where the text of FreeLanes is empty
	Free  []int64 // the numbers that FreeLanes returned, where it has a text
}

// HeldLane is a lane as the process holds it that got it under the token.
type HeldLane struct {
	Spool int64
	Lane  int
	Token int64
}

// RegisterSpool enters a spool, unless there is one with this name.
func (s *Statements) RegisterSpool(name string, lanes int) Query {
	return Query{Text: s.registerSpool, Args: []any{name, lanes}}
}

// FillLanes enters the lanes of a spool that are missing.
func (s *Statements) FillLanes(spool int64, lanes int) Query {
	return Query{Text: s.fillLanes, Args: []any{spool, lanes}}
}

// Join enters the member or renews it.
func (s *Statements) Join(p JoinParams) Query {
	return Query{Text: s.join, Args: []any{p.Spool, p.Holder, p.InFlight, p.TTL}}
}

// Leave removes the member.
func (s *Statements) Leave(m Member) Query {
	return Query{Text: s.leave, Args: []any{m.Spool, m.Holder}}
}

// Renew lets the leases of all lanes that the member holds end so far from now, also of those that have ended meanwhile.
func (s *Statements) Renew(m Member, ttl int64) Query {
	return Query{Text: s.renew, Args: []any{ttl, m.Spool, m.Holder}}
}

// FreeLanes locks lanes that may be taken, as many as wanted, and skips those that another transaction has locked. It returns their numbers, for
// Acquire in the same transaction. Its text is empty where Acquire chooses lanes by itself.
func (s *Statements) FreeLanes(spool int64, wanted int) Query {
	return Query{Text: s.freeLanes, Args: []any{spool, wanted}}
}

// Acquire takes lanes. Each gets a new token, and a mark where the last holder did not give it back.
func (s *Statements) Acquire(p AcquireParams) Query {
	var which any = p.Limit
	if s.freeLanes != "" {
		which = List(p.Free)
	}
	return Query{Text: s.acquire, Args: []any{p.Later, p.Holder, p.TTL, p.Spool, which}}
}

// Held returns lane, token and suspect of each lane that the member holds.
func (s *Statements) Held(m Member) Query {
	return Query{Text: s.held, Args: []any{m.Spool, m.Holder}}
}

// LocksRows says whether transactions lock rows. Otherwise one that writes keeps all others out, and there is no Lock and no HoldLane.
func (s *Statements) LocksRows() bool { return s.holdLane != "" }

// HoldLane locks a lane until the transaction ends, so that no process takes it, whatever its lease says. It returns 1, or no row where the lane is
// not held under the token.
func (s *Statements) HoldLane(l HeldLane) Query {
	return Query{Text: s.holdLane, Args: []any{l.Spool, l.Lane, l.Token}}
}

// ClearSuspect takes away the mark that Acquire leaves on a lane which the last holder did not give back.
func (s *Statements) ClearSuspect(l HeldLane) Query {
	return Query{Text: s.clearSuspect, Args: []any{l.Spool, l.Lane, l.Token}}
}

// Notifies says whether the database has wake-ups.
func (s *Statements) Notifies() bool { return s.notify != "" }

// Notify wakes all that listen to a channel. They get no payload, since they look for themselves.
func (s *Statements) Notify(channel string) Query {
	return Query{Text: s.notify, Args: []any{channel, ""}}
}
