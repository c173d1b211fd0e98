package checker

import (
	"github.com/postbox-go/watermill-postbox/internal/torture/history"
	"github.com/postbox-go/watermill-postbox/internal/torture/ledger"
)

// completeEvidence finds what would make the other oracles blind: missing lines, names that nobody knows, rows that
// nobody claims to have written.
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
		case i.Parent == "" && !x.of(i.Message).intended:
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
	history.Healed: true, history.Repeated: true, history.Fault: true,
}

// committedIsThere: what COMMIT answered for is in the database, and what is known to be rolled back is not. Where a
// producer lost the answer, or its life, either will do.
func committedIsThere(x *index, found findings) {
	x.eachSaid(func(message string, s *said) {
		_, there := x.intents[message]
		switch {
		case s.committed && !there:
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

// nothingFromNothing: only messages whose transaction committed are sent, stored, handled or dead. One violation a
// message will do.
func nothingFromNothing(x *index, found findings) {
	told := map[string]bool{}
	trace := func(message, where string) {
		if _, there := x.intents[message]; !there && message != "" && !told[message] {
			told[message] = true
			found(message, "was never committed, and yet %s", where)
		}
	}
	for _, r := range x.Records {
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

// nameOf names a consumer or its queue, or the outbox.
func nameOf(consumer string) string {
	if consumer == "" {
		return "the outbox"
	}
	return consumer
}
