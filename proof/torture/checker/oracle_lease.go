package checker

import "slices"

// laneOf is one lane of one spool.
type laneOf struct {
	spool string
	lane  int
}

// oneHolderAToken: under one token, a lane has one holder for ever. What two processes both held
// shows here, and what one of them then did to the other's work in the effects. It holds for leases
// that a failover has lost, too.
func oneHolderAToken(x *index, found findings) {
	type grant struct {
		laneOf
		token int64
	}
	holders := map[grant]string{}
	leases := slices.Clone(x.Database.Leases)
	for _, f := range x.Failovers {
		leases = append(leases, f.Leases...)
	}
	for _, l := range leases {
		g := grant{laneOf{l.Spool, l.Lane}, l.Token}
		switch holder := holders[g]; {
		case l.Holder == "": // handed back
		case holder == "":
			holders[g] = l.Holder
		case holder != l.Holder:
			found("", "token %d of lane %d of %q was held by %s and by %s", l.Token, l.Lane, l.Spool, holder, l.Holder)
		}
	}
}

// tokensGrow: the tokens of a lane never shrink, and whoever takes it gets a greater one.
func tokensGrow(x *index, found findings) {
	x.eachChange(func(before, after Lease) {
		taken := after.Holder != "" && after.Holder != before.Holder
		if after.Token < before.Token || taken && after.Token == before.Token {
			found("", "lane %d of %q went from token %d of %q to token %d of %q",
				after.Lane, after.Spool, before.Token, before.Holder, after.Token, after.Holder)
		}
	})
}

// leasesAreKept: nobody takes a lane from another before that one's time is over, by the database's
// clock.
func leasesAreKept(x *index, found findings) {
	x.eachChange(func(before, after Lease) {
		taken := after.Holder != "" && before.Holder != "" && after.Holder != before.Holder
		if taken && after.At.Before(after.Before) {
			found("", "%s took lane %d of %q from %s, which had it for another %s",
				after.Holder, after.Lane, after.Spool, before.Holder, after.Before.Sub(after.At))
		}
	})
}

// eachChange calls for each change of a lane's holder but the first, with the one before it.
func (x *index) eachChange(do func(before, after Lease)) {
	last := map[laneOf]Lease{}
	for _, l := range x.Database.Leases {
		lane := laneOf{l.Spool, l.Lane}
		if before, known := last[lane]; known {
			do(before, l)
		}
		last[lane] = l
	}
}
