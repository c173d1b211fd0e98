package checker

import (
	"time"

	"github.com/postbox-go/watermill-postbox/proof/torture/ledger"
)

// onePlaceEach: at each consumer a message is done, or waits, or is dead, and only once, so that
// written = done + pending + dead. A queue without transactions claims a message first, and ends it
// then, so it may wait there although it has its effect.
func onePlaceEach(x *index, found findings) {
	for _, i := range x.Database.Intents {
		for _, f := range x.topics[i.Topic] {
			s := x.at(f.Consumer, i.Message)
			done, dead, waiting := min(1, len(s.effects)), len(s.letters), len(s.pending)
			if f.Work == ledger.Claimed && done > 0 {
				waiting = 0
			}
			if done+dead+waiting > 1 {
				found(i.Message, "is at %s done %d times, dead %d times, and waits %d times", f.Consumer, done, dead, waiting)
			}
		}
		x.onePlaceInOutbox(i, found)
	}
}

// onePlaceInOutbox is the same for the outbox, which may keep what it has published. A message that
// was requeued may stand there more than once, and what was written since all is kept stands there.
func (x *index) onePlaceInOutbox(i Intent, found findings) {
	places := x.outbox[i.Message] + x.kept[i.Message]
	kept := !x.OutboxKeptSince.IsZero() && i.At.After(x.OutboxKeptSince)
	if places > 1 && !x.requeuedAnywhere(i) || places == 0 && kept {
		found(i.Message, "stands in the outbox %d times published, and %d times waiting or dead", x.kept[i.Message], x.outbox[i.Message])
	}
}

// Account is what became of the messages of a flow.
type Account struct {
	Consumer                     string
	Written, Done, Pending, Dead int
	// Underway are those that the outbox still has, or has given up, and those that are lost.
	Underway int
}

// accounts counts what became of the messages of each flow.
func (x *index) accounts() []Account {
	accounts := make([]Account, len(x.Flows))
	for n, f := range x.Flows {
		a := Account{Consumer: f.Consumer}
		for _, i := range x.Database.Intents {
			if i.Topic != f.Topic {
				continue
			}
			a.Written++
			switch s := x.at(f.Consumer, i.Message); {
			case len(s.effects) > 0:
				a.Done++
			case len(s.letters) > 0:
				a.Dead++
			case len(s.pending) > 0:
				a.Pending++
			default:
				a.Underway++
			}
		}
		accounts[n] = a
	}
	return accounts
}

// caughtUp: after the faults everything is through in the time it has, and nothing waits any more.
func caughtUp(x *index, found findings) {
	switch {
	case x.CaughtUp == NeverCaughtUp:
		found("", "something still waited after all the time there was")
	case x.Bounds.CatchUp > 0 && x.CaughtUp > x.Bounds.CatchUp:
		found("", "catching up took %s, and may take %s", x.CaughtUp, x.Bounds.CatchUp)
	}
	for _, p := range x.Database.Pending {
		found(p.Message, "still waits in %s, in state %d after %d attempts", nameOf(p.Queue), p.State, p.Attempts)
	}
}

// memoryBounded: no process occupied more than it may, whatever had piled up.
func memoryBounded(x *index, found findings) {
	if x.Bounds.Memory == 0 {
		return
	}
	told := map[string]bool{}
	for _, s := range x.Memory {
		if s.Bytes > x.Bounds.Memory && !told[s.Process] {
			told[s.Process] = true
			found("", "%s occupied %d bytes at %s, and may occupy %d", s.Process, s.Bytes, s.At.Format(time.TimeOnly), x.Bounds.Memory)
		}
	}
}

// oneClock: every time that Postbox stored lies within the run, by the database's clock, although
// the clocks of the processes are hours off; a message was not written before its intent, nor dead
// before it was written.
func oneClock(x *index, found findings) {
	if x.Bounds.Clock == 0 || len(x.Database.Intents) == 0 {
		return
	}
	c := clock{found: found, from: x.Database.Intents[0].At.Add(-x.Bounds.Clock), to: x.Database.ReadAt.Add(x.Bounds.Clock)}
	for _, p := range x.Database.Pending {
		c.within(p.Message, "was stored in "+nameOf(p.Queue), p.Created, x.intents[p.Message].At.Add(-x.Bounds.Clock))
		c.within(p.Message, "is due in "+nameOf(p.Queue), p.Available, c.from)
	}
	for _, l := range x.Database.Letters {
		c.within(l.Message, "was written down, says its dead letter,", l.Created, x.intents[l.Message].At.Add(-x.Bounds.Clock))
		c.within(l.Message, "died", l.Died, l.Created)
	}
	for _, f := range x.Database.Failures {
		c.within("", "a message failed in "+f.Process, f.At, c.from)
	}
	for _, k := range x.Database.Kept {
		c.within(k.Message, "was stored in "+nameOf(k.Queue), k.Created, x.intents[k.Message].At.Add(-x.Bounds.Clock))
		c.within(k.Message, "was done", k.Done, k.Created)
	}
	c.within("", "the oldest claim was made", x.Database.OldestClaim, c.from)
	c.within("", "the newest claim was made", x.Database.NewestClaim, c.from)
	for _, l := range x.Database.Leases {
		c.within("", "the lease of "+l.Holder+" runs out", l.Until, c.from)
	}
}

// clock tells times that are not of the run.
type clock struct {
	found    findings
	from, to time.Time
}

// within takes a time that may not be before another one, nor after the run. Zero is no time.
func (c clock) within(message, what string, at, from time.Time) {
	if !at.IsZero() && (at.Before(from) || at.After(c.to)) {
		c.found(message, "%s at %s, outside %s to %s", what,
			at.Format(time.DateTime), from.Format(time.DateTime), c.to.Format(time.DateTime))
	}
}
