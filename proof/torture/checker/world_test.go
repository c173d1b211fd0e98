package checker_test

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/postbox-go/watermill-postbox/proof/torture/checker"
	"github.com/postbox-go/watermill-postbox/proof/torture/history"
	"github.com/postbox-go/watermill-postbox/proof/torture/ledger"
)

// allowed is how many attempts the flows of the ledger allow.
var allowed = ledger.Flows[0].Attempts

// world makes up a run, record by record and row by row, as processes and a database that keep
// their promises would leave it. A test then breaks one of them.
type world struct {
	checker.Evidence
	lines map[string]int64
	turns map[string]int64
	id    int64
	now   time.Time
	// mute are the kinds of records that nobody writes.
	mute map[history.Kind]bool
	// emitted are the ids of messages that handlers have made up.
	emitted map[string]bool
}

var began = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func newWorld() *world {
	w := &world{lines: map[string]int64{}, turns: map[string]int64{}, now: began, mute: map[history.Kind]bool{}, emitted: map[string]bool{}}
	w.Flows, w.OutboxKeptSince = ledger.Flows, began
	w.CaughtUp = time.Second
	w.Bounds = checker.Bounds{CatchUp: time.Minute, Memory: 100 << 20, Clock: 2 * time.Minute}
	w.Skew = map[string]time.Duration{"consumer-2": 5 * time.Hour}
	return w
}

// next returns an id, and lets time pass.
func (w *world) next() int64 {
	w.id++
	w.now = w.now.Add(10 * time.Millisecond)
	return w.id
}

func (w *world) say(process string, kind history.Kind, message, consumer string) *history.Record {
	w.next()
	if w.mute[kind] {
		return &history.Record{}
	}
	w.lines[process]++
	at := w.now
	if process == "consumer-2/1" {
		at = at.Add(5 * time.Hour)
	}
	w.Records = append(w.Records, history.Record{
		Process: process, Line: w.lines[process], At: at, System: w.now, Kind: kind, Message: message, Consumer: consumer,
	})
	return &w.Records[len(w.Records)-1]
}

// write is a row of intent, with the next turn of the key.
func (w *world) write(intent ledger.Intent) {
	if intent.Key != "" {
		w.turns[intent.Key]++
		intent.Turn = w.turns[intent.Key]
	}
	w.Database.Intents = append(w.Database.Intents, checker.Intent{Intent: intent, ID: w.next(), At: w.now})
}

// produce is a transaction that ends in that way, and its row where it committed.
func (w *world) produce(message, topic, key string, plan history.Plan, end history.Kind) {
	w.say("producer-1/1", history.Intended, message, "")
	if end != history.RolledBack {
		w.write(ledger.Intent{Message: message, Topic: topic, Key: key, Plan: plan})
	}
	if end != "" {
		w.say("producer-1/1", end, message, "")
	}
}

func (w *world) send(process, message string) {
	w.say(process, history.Sending, message, "")
	w.say(process, history.Sent, message, "")
}

// leave is the message leaving the outbox.
func (w *world) leave(message string) {
	w.Database.Kept = append(w.Database.Kept, checker.Kept{ID: w.next(), Message: message, Created: w.now, Done: w.now})
}

func (w *world) intentOf(message string) checker.Intent {
	for _, i := range w.Database.Intents {
		if i.Message == message {
			return i
		}
	}
	return checker.Intent{}
}

func flowOf(consumer string) ledger.Flow {
	for _, f := range ledger.Flows {
		if f.Consumer == consumer {
			return f
		}
	}
	panic("no flow of " + consumer)
}

// effect is the transaction of a handler: its effect and its follow-up, whose id it returns.
func (w *world) effect(consumer, message string) (follows string) {
	i := w.intentOf(message)
	w.Database.Effects = append(w.Database.Effects, checker.Effect{ID: w.next(), At: w.now, Effect: ledger.Effect{
		Consumer: consumer, Message: message, Key: i.Key, Turn: i.Turn, Topic: i.Topic, Process: "consumer-1/1",
	}})
	if topic := flowOf(consumer).Emits; topic != "" {
		follows = message + ">" + topic
		for w.emitted[follows] {
			follows += "'" // the handler runs again
		}
		w.emitted[follows] = true
		key := ""
		if i.Key != "" {
			key = topic + " of " + i.Key
		}
		w.emit(ledger.Intent{Message: follows, Topic: topic, Key: key, Plan: history.Plain, Emitter: consumer, Parent: message})
	}
	return follows
}

// emit is a follow-up in the transaction of a handler.
func (w *world) emit(intent ledger.Intent) {
	w.say("consumer-1/1", history.Intended, intent.Message, intent.Emitter)
	w.write(intent)
}

// apply is one run of a handler to its commit, and all that follows from it.
func (w *world) apply(process, consumer, message string) {
	if flowOf(consumer).Queue() != "" {
		w.say("worker-1/1", history.Stored, message, consumer)
	}
	w.say(process, history.Saw, message, consumer)
	follows := w.effect(consumer, message)
	w.say(process, history.Applied, message, consumer)
	if follows != "" {
		w.say(process, history.Committed, follows, consumer)
		w.through(follows)
	}
}

// through is the way of a message to all its consumers but some.
func (w *world) through(message string, without ...string) {
	w.send("forwarder-1/1", message)
	w.leave(message)
	w.applied(message, without...)
}

// applied is what happens at its consumers.
func (w *world) applied(message string, without ...string) {
	topic := w.intentOf(message).Topic
next:
	for _, f := range ledger.Flows {
		for _, name := range without {
			if f.Consumer == name {
				continue next
			}
		}
		if f.Topic == topic {
			w.apply("consumer-1/1", f.Consumer, message)
		}
	}
}

// plain is a message that nothing happens to.
func (w *world) plain(message, topic, key string, without ...string) {
	w.produce(message, topic, key, history.Plain, history.Committed)
	w.through(message, without...)
}

// fail is a run that fails, as an attempt of that number, 0 for one that does not count.
func (w *world) fail(process, consumer, message, subject string, attempt int) {
	w.say(process, history.Saw, message, consumer)
	w.say(process, history.Failed, message, consumer).Outage = attempt == 0
	if attempt > 0 {
		w.count(subject, attempt)
	}
}

// count is an entry of the failure history.
func (w *world) count(subject string, attempt int) {
	w.Database.Failures = append(w.Database.Failures, checker.Failure{
		ID: w.next(), Subject: subject, Attempt: attempt, At: w.now, Error: "planned", Process: "host/7",
	})
}

// bury is a dead letter.
func (w *world) bury(consumer, message, subject string, attempts int) {
	w.Database.Letters = append(w.Database.Letters, checker.Letter{
		ID: w.next(), Consumer: consumer, Message: message, Attempts: attempts, Error: "planned", Subject: subject,
		Created: w.intentOf(message).At, Died: w.now,
	})
}

// die is the end of poison, after so many attempts.
func (w *world) die(consumer, message string, attempts int) {
	subject := w.subjectOf(consumer, message)
	for n := range attempts {
		w.fail("consumer-1/1", consumer, message, subject, n+1)
	}
	w.bury(consumer, message, subject, attempts)
}

// nowhere is the end of a message that leads nowhere.
func (w *world) nowhere(message string, attempts int) {
	w.produce(message, ledger.Nowhere, "", history.Plain, history.Committed)
	for range attempts {
		w.say("forwarder-1/1", history.Sending, message, "")
	}
	w.bury("", message, w.subjectOf("", message), attempts)
}

// subjectOf names a message in the failures: by its row, or by its claim.
func (w *world) subjectOf(consumer, message string) string {
	if consumer == "" || flowOf(consumer).Queue() != "" {
		return stored(w.next())
	}
	return claim(consumer, message)
}

// claim is the key of a claim.
func claim(consumer, message string) string {
	scope := sha256.Sum256(append(binary.BigEndian.AppendUint64(nil, uint64(len(consumer))), consumer+flowOf(consumer).Topic...))
	return string(scope[:16]) + "\x00" + message
}

func stored(id int64) string {
	return string(binary.BigEndian.AppendUint64([]byte{'m'}, uint64(id))) //nolint:gosec // the bits are kept
}

// wait is a message that waits in a queue, or in the outbox.
func (w *world) wait(queue, message string) *checker.Pending {
	w.Database.Pending = append(w.Database.Pending, checker.Pending{
		ID: w.next(), Queue: queue, Message: message, Created: w.now, Available: w.now,
	})
	return &w.Database.Pending[len(w.Database.Pending)-1]
}

// hold is a change of the holder of lane 3 of the outbox.
func (w *world) hold(holder string, token int64, until time.Duration) {
	w.next()
	before := time.Time{}
	if n := len(w.Database.Leases); n > 0 {
		before = w.Database.Leases[n-1].Until
	}
	l := checker.Lease{ID: w.id, Spool: "outbox", Lane: 3, Token: token, Holder: holder, Before: before, At: w.now}
	if holder != "" {
		l.Until = w.now.Add(until)
	}
	w.Database.Leases = append(w.Database.Leases, l)
}

// end is when the database is read.
func (w *world) end() checker.Evidence {
	w.next()
	w.Database.ReadAt = w.now
	return w.Evidence
}
