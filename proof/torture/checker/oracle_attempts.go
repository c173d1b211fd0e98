package checker

import (
	"strings"
	"time"

	"github.com/postbox-go/watermill-postbox/proof/torture/history"
	"github.com/postbox-go/watermill-postbox/proof/torture/ledger"
)

// twins: a delivery may be given to two handlers at the same instant, and both may fail as the last
// attempt.
const twins = 1

// hidden is how many failures may come on top of the attempts allowed, for a delivery that an inbox
// handles as it comes: each fault may hide one outcome between its record and its burial, and
// copies of the message may fail at the same instant, in one process or in several, or because they
// were sent more than once. A queue has one holder, and its burial is one transaction with the
// record, so there is nothing to hide.
func (x *index) hidden(flow ledger.Flow, message string) int {
	if flow.Work != ledger.Inbox {
		return 0
	}
	s := x.of(message)
	return twins + x.faults + s.repeated + max(0, s.sending-1) + max(0, len(x.at(flow.Consumer, message).processes)-1)
}

// attemptsAreBounded: the database counts no attempt beyond those allowed, nor do handlers run much
// oftener. Of runs that failed each fault may have hidden one. An operator's requeue gives all
// attempts again.
func attemptsAreBounded(x *index, found findings) {
	for _, l := range x.Database.Letters {
		if l.Consumer == "" && l.Attempts > ledger.OutboxAttempts {
			found(l.Message, "died in the outbox after %d attempts, of %d", l.Attempts, ledger.OutboxAttempts)
		}
	}
	for _, f := range x.Flows {
		for _, i := range x.Database.Intents {
			if i.Topic != f.Topic {
				continue
			}
			s, allowed := x.at(f.Consumer, i.Message), f.Attempts+x.hidden(f, i.Message)
			if n := x.mostAttempts(Work{f.Consumer, i.Message}); n > allowed {
				found(i.Message, "has had attempt %d at %s, of %d", n, f.Consumer, f.Attempts)
			}
			runs := (1 + s.requeues) * (f.Attempts + x.hidden(f, i.Message) + x.faults)
			if s.failed > runs {
				found(i.Message, "failed %d times at %s, where %d attempts are allowed and %d runs could be explained",
					s.failed, f.Consumer, f.Attempts, runs)
			}
		}
	}
}

// mostAttempts returns the highest number of an attempt that the database knows of.
func (x *index) mostAttempts(w Work) int {
	most := 0
	for _, f := range x.failures[w] {
		most = max(most, f.Attempt)
	}
	s := x.at(w.Consumer, w.Message)
	for _, l := range s.letters {
		most = max(most, l.Attempts)
	}
	for _, p := range s.pending {
		most = max(most, p.Attempts)
	}
	return most
}

// deadHadTheirAttempts: a dead letter had all its attempts. Runs of which nobody knows the end may
// have counted as attempts, where a message is suspected of killing its process.
func deadHadTheirAttempts(x *index, found findings) {
	for _, l := range x.Database.Letters {
		allowed, others := ledger.OutboxAttempts, max(0, x.of(l.Message).sending-l.Attempts)+min(1, x.faults)
		if flow, known := x.flows[l.Consumer]; known {
			allowed, others = flow.Attempts, x.unexplained(x.at(l.Consumer, l.Message))
		}
		if l.Attempts+others < allowed {
			found(l.Message, "died at %s after %d of %d attempts, and %d runs that may have counted: %s",
				nameOf(l.Consumer), l.Attempts, allowed, others, l.Error)
		}
	}
}

// innocentsLive: only poison dies, and in the outbox only what leads nowhere: that a broker is away
// is no failure. A message whose runs failed or did not end as often as attempts are allowed may
// die for that: its process was killed under it again and again. So may one that has lost its
// transaction as often.
func innocentsLive(x *index, found findings) {
	for _, l := range x.Database.Letters {
		i, there := x.intents[l.Message]
		flow, known := x.flows[l.Consumer]
		switch {
		case !there, i.Topic == ledger.Nowhere: // the first is for another oracle
		case !known:
			found(l.Message, "died in the outbox: %s", l.Error)
		case i.Plan != history.Poison:
			if s := x.at(l.Consumer, l.Message); s.failed+x.unexplained(s)+x.lostTransactions(Work{l.Consumer, l.Message}) < flow.Attempts {
				found(l.Message, "is %s and died at %s, where it failed %d times, %d runs did not end, and %d met an outage: %s",
					i.Plan, l.Consumer, s.failed, s.unfinished(), s.outages, l.Error)
			}
		}
	}
}

// transactionLost is how the failure of a handler begins that lost its transaction while the
// database was there.
const transactionLost = "the handler lost its transaction"

// lostTransactions are attempts that may count although the handler met an outage: its connection
// was cut while others could reach the database, and the attempt is recorded as such. Nothing else
// tells a cut from a handler's own time-out.
func (x *index) lostTransactions(w Work) int {
	recorded := 0
	for _, f := range x.failures[w] {
		if strings.Contains(f.Error, transactionLost) {
			recorded++
		}
	}
	return min(recorded, x.at(w.Consumer, w.Message).touched)
}

// lingering is how long a connection that a fault has touched may take to end.
const lingering = 5 * time.Second

// touched returns 1 if a fault touched the process's connections to the database at that time, else
// 0.
func (x *index) touched(process string, at time.Time) int {
	for _, t := range x.Troubles {
		if t.Database && t.concerns(process) && !at.Before(t.From) && at.Before(t.To.Add(lingering)) {
			return 1
		}
	}
	return 0
}

// onlyFailuresCount: behind each attempt that counted is a run that failed by itself, one that did
// not end, or one that lost its transaction to a fault. A handler says that it failed before the
// attempt is counted.
func onlyFailuresCount(x *index, found findings) {
	for _, i := range x.Database.Intents {
		for _, f := range x.topics[i.Topic] {
			w := Work{f.Consumer, i.Message}
			counted := 0
			for _, failure := range x.failures[w] {
				counted += min(failure.Attempt, 1) // 0 is no attempt
			}
			if s := x.at(f.Consumer, i.Message); counted > s.failed+s.unfinished()+x.lostTransactions(w) {
				found(i.Message, "has %d attempts counted at %s, where it failed %d times, %d runs did not end, and %d met an outage",
					counted, f.Consumer, s.failed, s.unfinished(), s.outages)
			}
		}
	}
}
