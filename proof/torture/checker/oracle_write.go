package checker

import (
	"github.com/postbox-go/watermill-postbox/proof/torture/history"
	"github.com/postbox-go/watermill-postbox/proof/torture/ledger"
)

// completeEvidence finds what would make the other oracles blind: missing lines, names that nobody
// knows, rows that nobody claims to have written.
func completeEvidence(x *index, found findings) {
	if len(x.Database.Intents) == 0 {
		found("", "there is not one intent: the run did nothing")
	}
	lines := map[string]int64{}
	for _, r := range x.Records {
		if lines[r.Process]++; r.Line != lines[r.Process] {
			found("", "the record of %s after line %d is line %d", r.Process, lines[r.Process]-1, r.Line)
			lines[r.Process] = r.Line
		}
		if !knownKinds[r.Kind] {
			found(r.Message, "%s, line %d: nobody knows the kind %q", r.Process, r.Line, r.Kind)
		}
		if _, known := x.flows[r.Consumer]; r.Consumer != "" && !known {
			found(r.Message, "%s, line %d: there is no consumer %q", r.Process, r.Line, r.Consumer)
		}
	}
	seen := map[string]bool{}
	for _, i := range x.Database.Intents {
		switch {
		case seen[i.Message]:
			found(i.Message, "has two rows of intent")
		case !x.of(i.Message).intended:
			found(i.Message, "was intended by nobody")
		case len(x.topics[i.Topic]) == 0 && i.Topic != ledger.Nowhere:
			found(i.Message, "goes to topic %q, which no flow has", i.Topic)
		}
		seen[i.Message] = true
	}
	for _, e := range x.Database.Effects {
		if x.at(e.Consumer, e.Message).saw == 0 {
			found(e.Message, "has effect %d at %s, where no handler saw it", e.ID, e.Consumer)
		}
	}
}

// knownKinds are the kinds of records that the index understands.
var knownKinds = map[history.Kind]bool{
	history.Intended: true, history.Committed: true, history.RolledBack: true, history.Unknown: true,
	history.Sending: true, history.Sent: true, history.Saw: true, history.Applied: true, history.Failed: true,
	history.Duplicate: true, history.Stored: true, history.Requeueing: true, history.Requeued: true,
	history.Healed: true, history.Tailed: true, history.Repeated: true, history.Fault: true,
}

// committedIsThere: what COMMIT answered for is in the database, and what is known to be rolled
// back is not. Where a producer lost the answer, or its life, either will do. A failover may lose
// what the old database confirmed.
func committedIsThere(x *index, found findings) {
	x.eachSaid(func(message string, s *said) {
		_, there := x.intents[message]
		_, lost := x.lostIntent(message)
		switch {
		case s.committed && !there && !lost:
			found(message, "was committed, and its row is not there")
		case s.rolledBack && there:
			found(message, "was rolled back, and its row is there")
		}
	})
}

// eachSaid calls for each message that a producer spoke of, in the order in which they did.
func (x *index) eachSaid(do func(message string, s *said)) {
	for _, r := range x.Records {
		if r.Kind == history.Intended {
			do(r.Message, x.said[r.Message])
		}
	}
}

// nothingFromNothing: only messages whose transaction committed are sent, stored, handled or dead.
// One violation a message will do. A message that a failover has lost may be at the broker, and go
// its way from there, but no process begins to publish it long after.
func nothingFromNothing(x *index, found findings) {
	told := map[string]bool{}
	trace := func(message, where string) {
		_, there := x.intents[message]
		_, lost := x.lostIntent(message)
		if !there && !lost && message != "" && !told[message] {
			told[message] = true
			found(message, "was never committed, and yet %s", where)
		}
	}
	for _, r := range x.Records {
		if f, lost := x.lostIntent(r.Message); lost && r.Kind == history.Sending && r.System.After(f.Moved.Add(forgetting)) &&
			!x.requeuedInAny(r.Message) && !told[r.Message] {
			told[r.Message] = true
			found(r.Message, "was lost by the failover, and %s began to send it %s later", r.Process, r.System.Sub(f.Moved))
		}
		switch r.Kind {
		case history.Sending, history.Sent, history.Stored, history.Saw, history.Applied, history.Failed, history.Duplicate:
			trace(r.Message, r.Process+" wrote down: "+string(r.Kind))
		default: // before the commit, or about something else
		}
	}
	for _, e := range x.Database.Effects {
		trace(e.Message, "has an effect at "+e.Consumer)
	}
	for _, l := range x.Database.Letters {
		trace(l.Message, "is a dead letter")
	}
	for _, p := range x.Database.Pending {
		trace(p.Message, "waits in "+nameOf(p.Queue))
	}
}

// requeuedInAny says whether an operator may have given the message another turn anywhere.
func (x *index) requeuedInAny(message string) bool {
	for consumer := range x.flows {
		if x.requeued(consumer, message) {
			return true
		}
	}
	return false
}

// nameOf names a consumer or its queue, or the outbox.
func nameOf(consumer string) string {
	if consumer == "" {
		return "the outbox"
	}
	return consumer
}
