package checker_test

import (
	"slices"
	"time"

	"github.com/postbox-go/watermill-postbox/proof/torture/checker"
	"github.com/postbox-go/watermill-postbox/proof/torture/history"
	"github.com/postbox-go/watermill-postbox/proof/torture/ledger"
)

// after begins a run with a failover, and goes on with a database of which the damage may take
// something away.
func after(damage func(w *world)) func(w *world) {
	return func(w *world) {
		*w = *lossy()
		damage(w)
	}
}

// during lets something happen between the last time that the standby had and the failover.
func during(prepare, happen, then func(w *world)) func(w *world) {
	return func(w *world) {
		prepare(w)
		to := w.sever()
		happen(w)
		w.failOver(to)
		then(w)
	}
}

// waiting is a message that is committed and waits in the outbox.
func waiting(w *world) {
	w.produce("m", ledger.Receipts, "", history.Plain, history.Committed)
	w.wait("", "m")
}

// underway is a message that is published, and no consumer has it.
func underway(w *world) {
	w.produce("m", ledger.Orders, "k", history.Plain, history.Committed)
	w.send("forwarder-1/1", "m")
	w.leave("m")
}

func lossless(w *world) { w.Failovers[len(w.Failovers)-1].Lossless = true }

// inQueue is underway at all consumers but one, which has stored it.
func inQueue(w *world) {
	underway(w)
	w.applied("m", "auditor")
	w.say("worker-1/1", history.Stored, "m", "auditor")
	w.wait("auditor", "m")
}

// damagesByFailover are what no failover excuses.
var damagesByFailover = []broken{
	{"A1 a message that the new primary has is deleted unsent", during(waiting, func(*world) {}, func(w *world) {
		w.Database.Pending = nil
		w.leave("m")
	}), says("nothing lost", "published")},
	{"A1 a message that the new primary has confirmed is deleted unsent", after(func(w *world) {
		w.produce("m", ledger.Receipts, "", history.Plain, history.Committed)
		w.leave("m")
	}), says("nothing lost", "published")},
	{"A1 a message that the new primary has confirmed is not there", after(func(w *world) {
		w.say("producer-1/1", history.Intended, "m", "")
		w.say("producer-1/1", history.Committed, "m", "")
	}), says("committed is there")},
	{"A1 a message that was confirmed before the standby was cut off is not there", during(func(w *world) {
		w.say("producer-1/1", history.Intended, "m", "")
		w.say("producer-1/1", history.Committed, "m", "")
	}, func(*world) {}, func(*world) {}), says("committed is there")},
	{"A1 a message that the new primary had is not there", func(w *world) {
		w.say("producer-1/1", history.Intended, "m", "")
		to := w.sever()
		w.say("producer-1/1", history.Committed, "m", "")
		w.failOver(to).Has.Intents["m"] = true
	}, says("committed is there")},
	{
		"A1 a synchronous failover loses a message", during(func(*world) {}, plainOrder, lossless),
		says("committed is there", "nothing from nothing", "applied has its effect", "stored is kept"),
	},
	{"A1 a synchronous failover loses an effect", during(inQueue, func(w *world) {
		w.apply("consumer-1/2", "auditor", "m")
		w.Database.Pending = nil
	}, lossless), says("applied has its effect", "caught up")},
	{"A1 the cache of claims answers for a claim that is gone", during(underway, func(w *world) {
		w.applied("m")
	}, func(w *world) {
		for _, consumer := range []string{"auditor", "scorer", "reporter"} {
			w.apply("consumer-1/2", consumer, "m")
		}
		w.say("consumer-1/2", history.Duplicate, "m", "accountant")
	}), says("nothing lost")},
	{"A1 a message is let go as a duplicate of nothing before a failover", during(underway, func(w *world) {
		w.applied("m", "accountant")
		w.say("consumer-1/2", history.Duplicate, "m", "accountant")
	}, func(w *world) {
		w.applied("m", "accountant")
	}), says("nothing lost")},
	{"A1 a message that the new primary had in a queue is lost", during(inQueue, func(w *world) {
		w.apply("consumer-1/2", "auditor", "m")
	}, func(w *world) {
		w.Database.Pending = nil
	}), says("nothing lost", "stored is kept")},
	{"A1 a message whose claim the new primary had is lost", during(underway, func(w *world) {
		w.applied("m", "auditor")
		w.say("worker-1/1", history.Stored, "m", "auditor")
	}, func(w *world) {
		w.Failovers[0].Has.Claims[claim("auditor", "m")] = true
		w.applied("m", "auditor")
	}), says("nothing lost", "stored is kept")},
	{"A1 a message is lost to a consumer that was written after the failover", after(func(w *world) {
		w.plain("m", ledger.Orders, "k", "accountant")
	}), says("nothing lost")},
	{"A1 a message that no process has confirmed is lost to a consumer", during(underway, func(w *world) {
		w.applied("m", "accountant")
		w.say("consumer-1/2", history.Saw, "m", "accountant")
	}, func(w *world) {
		w.applied("m", "accountant")
	}), says("nothing lost")},
	{"A1 an effect twice, since the failover lost one of its claims only", during(underway, func(*world) {}, func(w *world) {
		w.applied("m")
		w.apply("consumer-1/2", "scorer", "m")
	}), says("effect once")},
	{"A1 effects of a key that no failover has lost are out of order", after(func(w *world) {
		two(w, history.Plain, "auditor")
		w.apply("consumer-1/1", "auditor", "b")
		w.apply("consumer-1/1", "auditor", "a")
		w.plain("c", ledger.Orders, "k")
	}), says("order of effects")},
	{"A1 publications of the new primary's messages are out of order", after(func(w *world) {
		w.produce("a", ledger.Orders, "k", history.Plain, history.Committed)
		w.produce("b", ledger.Orders, "k", history.Plain, history.Committed)
		w.send("forwarder-1/1", "b")
		w.through("a")
		w.through("b")
	}), says("order of publications")},
	{"A1 a message that was rolled back is published around a failover", during(func(*world) {}, func(w *world) {
		w.produce("m", ledger.Payments, "", history.Plain, history.RolledBack)
		w.send("forwarder-1/1", "m")
	}, func(*world) {}), says("nothing from nothing")},
	{"A1 a process publishes for ever what it had in memory", during(func(*world) {}, func(w *world) {
		w.produce("m", ledger.Payments, "", history.Plain, history.Committed)
	}, func(w *world) {
		w.now = w.now.Add(30 * time.Second)
		w.send("forwarder-1/1", "m")
	}), says("nothing from nothing")},
	{"A1 a token that the old primary had given out is given to another", during(func(*world) {}, func(w *world) {
		w.hold("old", 4, 0)
	}, func(w *world) {
		w.hold("new", 4, 0)
	}), says("one holder a token")},
}

// loseTransaction is a run whose connection is cut, and counts as an attempt that is recorded as
// such.
func loseTransaction(w *world, text string) {
	w.produce("m", ledger.Receipts, "", history.Plain, history.Committed)
	w.through("m", "postman")
	w.fail("consumer-1/1", "postman", "m", "", 0)
	w.count(w.subjectOf("postman", "m"), 1)
	w.Database.Failures[len(w.Database.Failures)-1].Error = text
	w.apply("consumer-1/1", "postman", "m")
}

// letter makes a message "m", which dies at the postman before a copy of it is a duplicate. It
// returns the letters without that one.
func (w *world) letter() []checker.Letter {
	w.produce("m", ledger.Receipts, "", history.Poison, history.Committed)
	w.send("forwarder-1/1", "m")
	w.leave("m")
	others := slices.Clone(w.Database.Letters)
	w.die("postman", "m", allowed)
	w.say("consumer-1/2", history.Duplicate, "m", "postman")
	return others
}

// requeue lets an operator send the message of [world.letter] again.
func (w *world) requeue() {
	for _, what := range []history.Kind{history.Healed, history.Requeueing, history.Requeued} {
		w.say("operator-1/1", what, "m", "postman")
	}
	w.send("forwarder-1/1", "m")
}

// reportApplied lets the postman say that it applied that message. The database that is judged
// never had the effect.
func (w *world) reportApplied() {
	w.say("consumer-1/2", history.Saw, "m", "postman")
	w.say("consumer-1/2", history.Applied, "m", "postman")
}
