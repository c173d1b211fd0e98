package dialect

// The builders of the files arguments_*.go put the arguments of a statement into the order of its text, which all
// databases share. The driver cannot tell numbers apart, so arguments that could be swapped are fields with names.
// Times and durations are microseconds.

// Member is a process that shares the lanes of a spool with others.
type Member struct {
	Spool  int64
	Holder string
}

// JoinParams describe a member.
type JoinParams struct {
	Member
	InFlight string // its heartbeat, as JSON
	TTL      int64  // how long it counts as a member without a renewal
}

// AcquireParams say which free lanes a member takes.
type AcquireParams struct {
	Member
	TTL   int64
	Later int64   // at least 1: the new token exceeds the old token and the clock by this
	Limit int     // maximum number of lanes, if the text of FreeLanes is empty
	Free  []int64 // the numbers that FreeLanes returned, if it has a text
}

// HeldLane is a lane with the token under which the process acquired it.
type HeldLane struct {
	Spool int64
	Lane  int
	Token int64
}

// RegisterSpool inserts a spool, unless there is one with this name.
func (s *Statements) RegisterSpool(name string, lanes int) Query {
	return Query{Text: s.registerSpool, Args: []any{name, lanes}}
}

// FillLanes inserts the missing lanes of a spool.
func (s *Statements) FillLanes(spool int64, of Layout) Query {
	return Query{Text: s.fillLanes, Args: []any{spool, of.First, of.Next() - 1}}
}

// Join inserts or renews the member.
func (s *Statements) Join(p JoinParams) Query {
	return Query{Text: s.join, Args: []any{p.Spool, p.Holder, p.InFlight, p.TTL}}
}

// Leave removes the member.
func (s *Statements) Leave(m Member) Query {
	return Query{Text: s.leave, Args: []any{m.Spool, m.Holder}}
}

// Renew extends the leases of all lanes that the member holds to this time from now, including leases that have expired
// meanwhile.
func (s *Statements) Renew(m Member, ttl int64) Query {
	return Query{Text: s.renew, Args: []any{ttl, m.Spool, m.Holder}}
}

// FreeLanes locks up to the wanted number of lanes that may be taken, and skips lanes that another transaction has
// locked. It returns their numbers, for Acquire in the same transaction. Its text is empty if Acquire chooses lanes by
// itself.
func (s *Statements) FreeLanes(spool int64, wanted int) Query {
	return Query{Text: s.freeLanes, Args: []any{spool, wanted}}
}

// Acquire takes lanes. Each gets a new token. A lane that the last holder did not give back also gets a mark.
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

// LocksRows reports whether transactions lock rows. Otherwise a writing transaction excludes all others, and there is
// no Lock and no HoldLane.
func (s *Statements) LocksRows() bool { return s.holdLane != "" }

// HoldLane locks a lane until the transaction ends, so that no process takes it, even if its lease has expired. It
// returns 1, or no row if the lane is not held under the token.
func (s *Statements) HoldLane(l HeldLane) Query {
	return Query{Text: s.holdLane, Args: []any{l.Spool, l.Lane, l.Token}}
}

// ClearSuspect removes the mark that Acquire sets on a lane that the last holder did not give back.
func (s *Statements) ClearSuspect(l HeldLane) Query {
	return Query{Text: s.clearSuspect, Args: []any{l.Spool, l.Lane, l.Token}}
}

// Notifies reports whether the database has wake-ups.
func (s *Statements) Notifies() bool { return s.notify != "" }

// Notify wakes all listeners of a channel. It has no payload, since listeners poll.
func (s *Statements) Notify(channel string) Query {
	return Query{Text: s.notify, Args: []any{channel, ""}}
}
