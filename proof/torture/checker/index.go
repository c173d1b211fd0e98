package checker

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/google/uuid"

	"github.com/postbox-go/watermill-postbox/proof/torture/history"
	"github.com/postbox-go/watermill-postbox/proof/torture/ledger"
)

// index is the evidence, by what the oracles ask for. Nothing in it depends on the clocks of
// processes.
type index struct {
	Evidence
	flows   map[string]ledger.Flow   // by consumer
	topics  map[string][]ledger.Flow // by topic
	intents map[string]Intent        // by message
	said    map[string]*said         // by message
	works   map[Work]*state
	// emitted are the intents of handlers, by what they handled.
	emitted map[Work][]Intent
	// outbox are the messages that wait in it, or died there, and kept those that it has published
	// and kept.
	outbox, kept map[string]int
	// failures are those of a work, as the database counts them; strangers could not be told whose
	// they are.
	failures  map[Work][]Failure
	strangers int
	faults    int
}

// said is what processes said of a message on its way to the consumers.
type said struct {
	intended, committed, rolledBack, unknown bool
	// producer is the incarnation that intended it, or whose handler did.
	producer                string
	intendedAt, committedAt time.Time

	sending, sent, repeated int
	healed                  bool
}

// state is what became of a message at one consumer, and what processes said of that.
type state struct {
	effects []Effect
	letters []Letter
	pending []Pending

	saw, failed, outages, applied int
	// touched are those of the outages at whose time a fault touched the process's connections to
	// the database.
	touched   int
	requeues  int
	processes map[string]bool // incarnations that ran it
	confirmed []confirmation
	// reopened is when an operator requeued its dead letter last. What was confirmed before says
	// nothing of how it stands.
	reopened time.Time
}

// unfinished are runs of which nobody knows how they ended.
func (s *state) unfinished() int { return max(0, s.saw-s.failed-s.outages-s.applied) }

// unexplained are those, and where anything broke, one more that ended before the handler could say
// that it began.
func (x *index) unexplained(s *state) int { return s.unfinished() + min(1, x.faults) }

func newIndex(e Evidence) *index {
	x := &index{
		Evidence: e,
		flows:    map[string]ledger.Flow{}, topics: map[string][]ledger.Flow{},
		intents: map[string]Intent{}, said: map[string]*said{}, works: map[Work]*state{},
		emitted: map[Work][]Intent{}, outbox: map[string]int{}, kept: map[string]int{}, failures: map[Work][]Failure{},
	}
	for _, f := range e.Flows {
		x.flows[f.Consumer] = f
		x.topics[f.Topic] = append(x.topics[f.Topic], f)
	}
	for _, r := range e.Records {
		x.note(r)
	}
	x.stand()
	x.attribute()
	return x
}

// of returns what is known of a message on its way.
func (x *index) of(message string) *said {
	s := x.said[message]
	if s == nil {
		s = &said{}
		x.said[message] = s
	}
	return s
}

// at returns what is known of a message at a consumer.
func (x *index) at(consumer, message string) *state {
	w := Work{consumer, message}
	s := x.works[w]
	if s == nil {
		s = &state{processes: map[string]bool{}}
		x.works[w] = s
	}
	return s
}

// note takes in a record.
func (x *index) note(r history.Record) {
	switch r.Kind {
	case history.Intended:
		s := x.of(r.Message)
		s.intended, s.intendedAt, s.producer = true, r.System, r.Process
	case history.Committed:
		s := x.of(r.Message)
		s.committed, s.committedAt = true, r.System
	case history.RolledBack:
		x.of(r.Message).rolledBack = true
	case history.Unknown:
		x.of(r.Message).unknown = true
	case history.Sending:
		x.of(r.Message).sending++
	case history.Sent:
		x.of(r.Message).sent++
	case history.Repeated:
		x.of(r.Message).repeated++
	case history.Healed:
		x.of(r.Message).healed = true
	case history.Fault:
		x.faults++
	case history.Requeued, history.Tailed: // there is nothing to add up
	default:
		x.noteWork(r)
	}
}

// noteWork takes in a record about a message at a consumer.
func (x *index) noteWork(r history.Record) {
	s := x.at(r.Consumer, r.Message)
	switch r.Kind {
	case history.Saw:
		s.saw++
		s.processes[r.Process] = true
	case history.Failed:
		if r.Outage {
			s.outages++
			s.touched += x.touched(r.Process, r.System)
		} else {
			s.failed++
		}
	case history.Applied:
		s.applied++
		s.confirmed = append(s.confirmed, confirmation{r.Kind, r.Process, r.System})
	case history.Duplicate, history.Stored:
		s.confirmed = append(s.confirmed, confirmation{r.Kind, r.Process, r.System})
	case history.Requeueing:
		s.requeues++
		if r.System.After(s.reopened) { // the records of each process come together
			s.reopened = r.System
		}
	default: // the oracle of the evidence tells
	}
}

// stand takes in what stands in the database.
func (x *index) stand() {
	for _, i := range x.Database.Intents {
		if _, again := x.intents[i.Message]; !again {
			x.intents[i.Message] = i
		}
		if i.Parent != "" {
			w := Work{i.Emitter, i.Parent}
			x.emitted[w] = append(x.emitted[w], i)
		}
	}
	for _, e := range x.Database.Effects {
		s := x.at(e.Consumer, e.Message)
		s.effects = append(s.effects, e)
	}
	for _, l := range x.Database.Letters {
		if l.Consumer == "" {
			x.outbox[l.Message]++
			continue
		}
		s := x.at(l.Consumer, l.Message)
		s.letters = append(s.letters, l)
	}
	for _, p := range x.Database.Pending {
		if p.Queue == "" {
			x.outbox[p.Message]++
			continue
		}
		s := x.at(p.Queue, p.Message)
		s.pending = append(s.pending, p)
	}
	for _, k := range x.Database.Kept {
		if k.Queue == "" {
			x.kept[k.Message]++
		}
	}
}

// attribute finds out whose failures the database has.
func (x *index) attribute() {
	subjects := map[string]Work{}
	for _, p := range x.Database.Pending {
		subjects[storedSubject(p.ID)] = Work{p.Queue, p.Message}
	}
	for _, k := range x.Database.Kept {
		subjects[storedSubject(k.ID)] = Work{k.Queue, k.Message}
	}
	for _, i := range x.Database.Intents {
		for _, f := range x.topics[i.Topic] {
			subjects[claimSubject(f.Consumer, f.Topic, i.Message)] = Work{f.Consumer, i.Message}
		}
	}
	for _, l := range x.Database.Letters {
		subjects[l.Subject] = Work{l.Consumer, l.Message}
	}
	for _, f := range x.Database.Failures {
		w, known := subjects[f.Subject]
		if !known { // a message of a queue that keeps none, or of the outbox, which is done
			x.strangers++
			continue
		}
		x.failures[w] = append(x.failures[w], f)
	}
}

// storedSubject is how failures name a message of the outbox or of a queue.
func storedSubject(id int64) string {
	return string(binary.BigEndian.AppendUint64([]byte{'m'}, uint64(id))) //nolint:gosec // the bits are kept
}

const (
	// scopeLength is how many bytes of a claim stand for consumer and topic.
	scopeLength = 16
	// formText and formUUID say how the message id follows them.
	formText, formUUID = 0, 1
)

// claimSubject is how failures, and claims, name a message to an inbox. Ids here are short.
func claimSubject(consumer, topic, message string) string {
	hash := sha256.Sum256(append(binary.BigEndian.AppendUint64(nil, uint64(len(consumer))), consumer+topic...))
	scope := string(hash[:scopeLength])
	if id, err := uuid.Parse(message); err == nil && id.String() == message {
		return scope + string(rune(formUUID)) + string(id[:])
	}
	return scope + string(rune(formText)) + message
}
