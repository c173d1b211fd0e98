package dialect

// The builders of the files arguments_*.go put the arguments of a statement into the order of its
// text, which all databases share. The driver cannot tell numbers apart, so arguments that could be
// swapped are fields with names. Times and durations are microseconds.

// Member is a process that shares the lanes of a spool with others.
type Member struct {
	Spool  int64
	Holder string
}

// JoinParams describe a member.
type JoinParams struct {
	Member
	InFlight string // its heartbeat, as JSON
	TTL      int64  // how long it is a member, and so holds its lanes, without a renewal
	NoShare  bool   // it stops, and has no share of the lanes
}

// AcquireParams say which free lanes a member takes.
type AcquireParams struct {
	Member
	Later  int64   // at least 1: the new token exceeds the old token and the clock by this
	Limit  int     // maximum number of lanes, if the text of FreeLanes is empty
	Locked []int64 // the numbers that LockLanes returned, if FreeLanes has a text
}

// HeldLane is a lane with the token under which the process acquired it.
type HeldLane struct {
	Spool int64
	Lane  int
	Token int64
}

// RegisterSpool inserts a spool, unless there is one with this name.
func (s *Statements) RegisterSpool(name string) Query {
	return s.query("RegisterSpool", args{"name": name})
}

// FillLanes inserts the missing lanes of a spool.
func (s *Statements) FillLanes(spool int64) Query {
	return s.query("FillLanes", args{"spool": spool})
}

// Join inserts or renews the member.
func (s *Statements) Join(p JoinParams) Query {
	return s.query("Join", args{"spool": p.Spool, "holder": p.Holder, "in_flight": p.InFlight, "ttl": p.TTL, "sharing": number(!p.NoShare)})
}

// Renew renews the member, and so the leases of all its lanes, also if they are over. If it changes
// no row, another process has deleted the member, and may have taken its lanes.
func (s *Statements) Renew(p JoinParams) Query {
	return s.query("Renew", args{"in_flight": p.InFlight, "ttl": p.TTL, "sharing": number(!p.NoShare), "spool": p.Spool, "holder": p.Holder})
}

// ExpireMembers deletes the members whose leases are over. Commit it before Acquire.
func (s *Statements) ExpireMembers(spool int64) Query {
	return s.query("ExpireMembers", args{"spool": spool})
}

// Leave removes the member.
func (s *Statements) Leave(m Member) Query {
	return s.query("Leave", args{"spool": m.Spool, "holder": m.Holder})
}

// ReleaseAll releases all lanes of a member whose lease is lost, and marks them as suspect.
func (s *Statements) ReleaseAll(m Member) Query {
	return s.query("ReleaseAll", args{"spool": m.Spool, "holder": m.Holder})
}

// FreeLanes returns numbers and tokens of up to the wanted number of lanes that may be taken, for
// LockLanes. Its text is empty if Acquire chooses lanes by itself.
func (s *Statements) FreeLanes(spool int64, wanted int) Query {
	return s.query("FreeLanes", args{"spool": spool, "most": wanted})
}

// LockLanes locks lanes that still have these tokens. It skips lanes that another transaction has
// locked. It returns the numbers of the locked lanes, for Acquire in the same transaction.
func (s *Statements) LockLanes(spool int64, free []HeldLane) Query {
	tuples := make([][2]int64, len(free))
	for i, l := range free {
		tuples[i] = [2]int64{int64(l.Lane), l.Token}
	}
	return s.query("LockLanes", args{"spool": spool, "lanes": List(tuples)})
}

// Acquire takes lanes. Each gets a new token. A lane that the last holder did not give back also
// gets a mark. The process must be a member before.
func (s *Statements) Acquire(p AcquireParams) Query {
	return s.query("Acquire", args{"spool": p.Spool, "holder": p.Holder, "later": p.Later, "most": p.Limit, "lanes": List(p.Locked)})
}

// Held returns lane, token and suspect of each lane that the member holds.
func (s *Statements) Held(m Member) Query {
	return s.query("Held", args{"spool": m.Spool, "holder": m.Holder})
}

// LocksRows reports whether transactions lock rows. Otherwise a writing transaction excludes all
// others, and there is no Lock and no HoldLane.
func (s *Statements) LocksRows() bool { return s.has("HoldLane") }

// HoldLane locks a lane until the transaction ends, so that no process takes it, even if its lease
// has expired. It returns 1, or no row if the lane is not held under the token.
func (s *Statements) HoldLane(l HeldLane) Query {
	return s.query("HoldLane", args{"spool": l.Spool, "lane": l.Lane, "token": l.Token})
}

// ClearSuspect removes the mark that Acquire sets on a lane that the last holder did not give back.
func (s *Statements) ClearSuspect(l HeldLane) Query {
	return s.query("ClearSuspect", args{"spool": l.Spool, "lane": l.Lane, "token": l.Token})
}

// BlockedLanes returns the suspect lanes of a member in which messages may stand behind one that
// waits for another attempt.
func (s *Statements) BlockedLanes(m Member) Query {
	return s.query("BlockedLanes", args{"spool": m.Spool, "holder": m.Holder})
}

// Notifies reports whether the database has wake-ups.
func (s *Statements) Notifies() bool { return s.has("Notify") }

// Notify wakes all listeners of a channel. It has no payload, since listeners poll.
func (s *Statements) Notify(channel string) Query {
	return s.query("Notify", args{"channel": channel, "payload": ""})
}
