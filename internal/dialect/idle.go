package dialect

// The statements of a drainer that has nothing to do while the log of its database tells what
// happens. PostgreSQL alone has them.

// IdleParams are the parameters of a look.
type IdleParams struct {
	JoinParams
	Ranges []Range
}

// IdleLook renews leases and membership, and tells whether there is something to do.
func (s *Statements) IdleLook(p IdleParams) Query {
	lanes, afters, upTos := rangeArrays(p.Ranges)
	return s.query("IdleLook", args{
		"spool": p.Spool, "holder": p.Holder, "in_flight": p.InFlight, "ttl": p.TTL, "lanes": lanes, "after": afters, "up_to": upTos,
	})
}
