package checker_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/proof/torture/checker"
	"github.com/postbox-go/watermill-postbox/proof/torture/history"
	"github.com/postbox-go/watermill-postbox/proof/torture/ledger"
)

// broken is a run in which one thing is wrong, and the oracles that must say so, and no others.
type broken struct {
	name   string
	damage func(w *world)
	says   []string
}

// damages are by guarantee. Each oracle is caught out at least once, which a test makes sure of.
var damages = slices.Concat(damagesToEvidence, damagesToWrites, damagesToEffects, damagesToOrder, damagesToAttempts,
	damagesToLeases, damagesToAccounts, damagesByFailover)

func says(oracles ...string) []string { return oracles }

func TestCheck_each_oracle_reports_only_its_own_violations(t *testing.T) {
	t.Parallel()
	for _, b := range damages {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			w := busy()
			b.damage(w)
			report := checker.Check(w.end())
			require.ElementsMatch(t, b.says, slices.Collect(maps.Keys(report.Total)), report.String())
			require.False(t, report.OK())
		})
	}
}

func TestCheck_each_oracle_is_tested(t *testing.T) {
	t.Parallel()
	proved := map[string]bool{}
	for _, b := range damages {
		for _, name := range b.says {
			proved[name] = true
		}
	}
	require.ElementsMatch(t, checker.OracleNames(), slices.Collect(maps.Keys(proved)))
}

// muted does something while nobody writes down records of that kind.
func muted(kind history.Kind, do func(w *world)) func(w *world) {
	return func(w *world) {
		w.mute[kind] = true
		do(w)
		w.mute[kind] = false
	}
}

func plainOrder(w *world) { w.plain("m", ledger.Orders, "k") }

var damagesToEvidence = []broken{
	{"nothing happened", func(w *world) {
		*w = *newWorld()
	}, says("evidence")},
	{"a line is missing", func(w *world) {
		at := slices.IndexFunc(w.Records, func(r history.Record) bool { return r.Kind == history.Duplicate })
		w.Records = slices.Delete(w.Records, at, at+1)
	}, says("evidence")},
	{"a record of a kind that nobody knows", func(w *world) {
		w.say("consumer-1/2", "danced", "first", "auditor")
	}, says("evidence")},
	{"a record of a consumer that nobody knows", func(w *world) {
		w.say("consumer-1/2", history.Saw, "first", "nobody")
	}, says("evidence")},
	{"an intent that nobody had", muted(history.Intended, plainOrder), says("evidence")},
	{"a topic that nobody knows", func(w *world) { w.plain("m", "elsewhere", "") }, says("evidence")},
	{"an effect without a run", muted(history.Saw, plainOrder), says("evidence")},
	{"an intent twice", func(w *world) {
		w.Database.Intents = append(w.Database.Intents, w.Database.Intents[0])
	}, says("evidence")},
}

var damagesToWrites = []broken{
	{"G1 a committed message is not there", func(w *world) {
		w.say("producer-1/1", history.Intended, "m", "")
		w.say("producer-1/1", history.Committed, "m", "")
	}, says("committed is there")},
	{"G1 a message that was rolled back is there", func(w *world) {
		w.say("producer-1/1", history.Intended, "m", "")
		w.say("producer-1/1", history.RolledBack, "m", "")
		w.write(ledger.Intent{Message: "m", Topic: ledger.Orders, Plan: history.Plain})
		w.through("m")
	}, says("committed is there")},
	{"G1 a message that was rolled back is sent", func(w *world) {
		w.send("forwarder-1/1", "undone")
	}, says("nothing from nothing")},
	{"G1 F26 a message whose commit was not answered is handled and not there", func(w *world) {
		w.say("consumer-1/2", history.Saw, "unknown-gone", "teller")
	}, says("nothing from nothing")},
	{"G1 a message that was never there has an effect", muted(history.Saw, func(w *world) {
		w.effect("postman", "undone")
	}), says("evidence", "nothing from nothing")},
	{"G1 a message that was never there is dead", func(w *world) {
		w.bury("auditor", "undone", "", allowed)
	}, says("nothing from nothing")},
	{"G1 a message that was never there waits", func(w *world) {
		w.wait("auditor", "undone")
	}, says("nothing from nothing", "caught up")},
	{"G2 F1 a message is lost to one of its consumers", func(w *world) {
		w.plain("m", ledger.Orders, "k", "accountant")
	}, says("nothing lost")},
	{"G2 F17 a message is marked and no broker accepted it", muted(history.Sent, plainOrder), says("published")},
	{"G2 a message that leads nowhere has left the outbox", func(w *world) {
		w.produce("m", ledger.Nowhere, "", history.Plain, history.Committed)
		w.leave("m")
	}, says("published")},
	{"G5 F1 a stored message is lost", func(w *world) {
		w.plain("m", ledger.Orders, "k", "auditor")
		w.say("worker-1/1", history.Stored, "m", "auditor")
		w.say("worker-1/1", history.Stored, "m", "auditor")
	}, says("nothing lost", "stored is kept")},
	{"G5 F9 a stored message is lost, and its key will come again from the outbox", func(w *world) {
		w.produce("m", ledger.Orders, "", history.Plain, history.Committed)
		w.send("forwarder-1/1", "m")
		w.applied("m", "scorer")
		w.say("worker-1/1", history.Stored, "m", "scorer")
		w.wait("", "m")
	}, says("stored is kept", "caught up")},
}

var damagesToEffects = []broken{
	{"G4 F6 F10 an effect twice", func(w *world) {
		w.apply("consumer-1/2", "scorer", "first")
	}, says("effect once")},
	{"G4 F6 an effect twice, with its follow-up", func(w *world) {
		w.plain("m", ledger.Payments, "")
		w.effect("teller", "m")
		w.Database.Intents[len(w.Database.Intents)-1].Message = "another"
		w.say("consumer-1/1", history.Intended, "another", "teller")
		w.through("another")
	}, says("effect once")},
	{"G4 F3 an effect of another message", func(w *world) {
		w.plain("m", ledger.Orders, "k")
		last := &w.Database.Effects[len(w.Database.Effects)-1]
		last.Turn += 100
	}, says("effect is the message's")},
	{"G4 F21 an effect at a consumer of another topic", func(w *world) {
		w.apply("consumer-1/2", "postman", "first")
	}, says("effect is the message's")},
	{"G4 F26 an applied message has no effect", func(w *world) {
		w.say("consumer-1/2", history.Applied, "poison", "accountant")
		w.say("consumer-1/2", history.Applied, "poison", "accountant")
	}, says("applied has its effect")},
	{"G4 F2 the effect of a failed handler stays", func(w *world) {
		w.produce("m", ledger.Orders, "k", history.Poison, history.Committed)
		w.through("m")
	}, says("failure leaves no trace")},
	{"G4 an effect without its follow-up", func(w *world) {
		w.produce("m", ledger.Payments, "", history.Plain, history.Committed)
		w.through("m", "teller")
		w.say("consumer-1/2", history.Saw, "m", "teller")
		w.effect("teller", "m")
		w.Database.Intents = w.Database.Intents[:len(w.Database.Intents)-1]
	}, says("follow-up with its effect")},
	{"G4 a follow-up without its effect", func(w *world) {
		w.produce("m", ledger.Payments, "", history.Poison, history.Committed)
		w.through("m", "teller")
		w.die("teller", "m", allowed)
		w.emit(ledger.Intent{Message: "f", Topic: ledger.Statements, Plan: history.Plain, Emitter: "teller", Parent: "m"})
		w.through("f")
	}, says("follow-up with its effect")},
	{"G4 a follow-up too many", func(w *world) {
		w.plain("m", ledger.Payments, "")
		w.emit(ledger.Intent{Message: "f", Topic: ledger.Statements, Plan: history.Plain, Emitter: "teller", Parent: "m"})
		w.through("f")
	}, says("follow-up with its effect")},
	{"G4 a follow-up goes astray", func(w *world) {
		w.plain("m", ledger.Payments, "")
		w.emit(ledger.Intent{Message: "f", Topic: ledger.Receipts, Plan: history.Plain, Emitter: "postman", Parent: "flaky"})
		w.through("f")
	}, says("follow-up with its effect")},
}

// two are two messages of a key, and what their consumers but one do.
func two(w *world, plan history.Plan, without string) {
	w.produce("a", ledger.Orders, "k", plan, history.Committed)
	w.produce("b", ledger.Orders, "k", history.Plain, history.Committed)
	for _, message := range []string{"a", "b"} {
		w.through(message, without)
	}
}

var damagesToOrder = []broken{
	{"G3 F16 a key's effects are out of order", func(w *world) {
		two(w, history.Plain, "auditor")
		w.apply("consumer-1/1", "auditor", "b")
		w.apply("consumer-1/1", "auditor", "a")
		w.plain("c", ledger.Orders, "k")
	}, says("order of effects")},
	{"G3 F4 a key's publications are out of order", func(w *world) {
		w.produce("a", ledger.Orders, "k", history.Plain, history.Committed)
		w.produce("b", ledger.Orders, "k", history.Plain, history.Committed)
		w.send("forwarder-2/1", "b")
		w.through("a")
		w.through("b")
		w.send("forwarder-2/1", "a")
		w.send("forwarder-2/1", "a")
	}, says("order of publications")},
	{"G3 F11 a key does not wait for what fails", func(w *world) {
		two(w, history.Poison, "reporter")
		w.apply("consumer-1/1", "reporter", "b")
		w.die("reporter", "a", allowed)
		w.plain("c", ledger.Orders, "k")
		for _, r := range []string{"accountant", "auditor", "scorer"} { // where it did fail in its turn
			w.say("operator-1/1", history.Healed, "a", r)
		}
	}, says("the dead hold their key")},
}

var damagesToAttempts = []broken{
	{"G7 F14 an attempt too many in a queue", func(w *world) {
		w.produce("m", ledger.Orders, "", history.Poison, history.Committed)
		w.through("m", "accountant", "auditor", "scorer", "reporter")
		for _, consumer := range []string{"accountant", "scorer", "reporter"} {
			w.die(consumer, "m", allowed)
		}
		w.die("auditor", "m", allowed+1)
	}, says("attempts are bounded")},
	{"G7 F25 attempts without end in an inbox", func(w *world) {
		w.produce("m", ledger.Receipts, "", history.Poison, history.Committed)
		w.through("m", "postman")
		w.die("postman", "m", allowed+20)
	}, says("attempts are bounded")},
	{"G7 F25 runs without end that are not counted", func(w *world) {
		for range 20 {
			w.say("worker-1/1", history.Saw, "poison", "auditor")
			w.say("worker-1/1", history.Failed, "poison", "auditor")
		}
	}, says("attempts are bounded")},
	{"G7 an attempt too many of what still waits", func(w *world) {
		w.plain("m", ledger.Orders, "k", "scorer")
		w.wait("scorer", "m").Attempts = allowed + 1
	}, says("attempts are bounded", "caught up")},
	{"G7 an attempt too many in the outbox", func(w *world) {
		w.nowhere("m", ledger.OutboxAttempts+1)
	}, says("attempts are bounded")},
	{"G7 poison dies too soon", func(w *world) {
		w.produce("m", ledger.Receipts, "", history.Poison, history.Committed)
		w.through("m", "postman")
		w.die("postman", "m", allowed-2)
	}, says("the dead had their attempts")},
	{"G7 a message dies in the outbox too soon", func(w *world) {
		w.nowhere("m", 1)
	}, says("the dead had their attempts")},
	{"G7 F13 a message dies because a broker is away", func(w *world) {
		w.produce("m", ledger.Receipts, "", history.Plain, history.Committed)
		for range ledger.OutboxAttempts {
			w.say("forwarder-1/1", history.Sending, "m", "")
		}
		w.bury("", "m", w.subjectOf("", "m"), ledger.OutboxAttempts)
	}, says("the innocent live")},
	{"G7 F13 a message dies of outages", func(w *world) {
		w.produce("m", ledger.Receipts, "", history.Plain, history.Committed)
		w.through("m", "postman")
		subject := w.subjectOf("postman", "m")
		for n := range allowed {
			w.fail("consumer-1/1", "postman", "m", subject, 0)
			w.count(subject, n+1)
		}
		w.bury("postman", "m", subject, allowed)
	}, says("the innocent live", "only failures count")},
	{"G7 a message dies of nothing", func(w *world) {
		w.produce("m", ledger.Receipts, "", history.Slow, history.Committed)
		w.through("m", "postman")
		w.bury("postman", "m", w.subjectOf("postman", "m"), allowed)
	}, says("the innocent live")},
	{"G7 F13 an outage counts as an attempt", func(w *world) {
		w.produce("m", ledger.Receipts, "", history.Plain, history.Committed)
		w.through("m", "postman")
		w.fail("consumer-1/1", "postman", "m", "", 0)
		w.count(w.subjectOf("postman", "m"), 1)
		w.apply("consumer-1/1", "postman", "m")
	}, says("only failures count")},
}

var damagesToLeases = []broken{
	{"G6 two hold one token", func(w *world) {
		w.hold("", 3, 0)
		w.hold("d", 4, 0)
		w.hold("e", 4, 0)
	}, says("one holder a token", "tokens grow")},
	{"G6 a lane is taken again under the token that it was handed back with", func(w *world) {
		w.hold("", 3, 0)
		w.hold("c", 3, 0)
	}, says("tokens grow")},
	{"G6 a token shrinks", func(w *world) {
		w.hold("", 3, 0)
		w.hold("", 2, 0)
	}, says("tokens grow")},
	{"G6 a lane is taken from a holder that still has it", func(w *world) {
		w.hold("", 3, 0)
		w.hold("d", 4, time.Minute)
		w.hold("e", 5, time.Second)
	}, says("leases are kept")},
}
