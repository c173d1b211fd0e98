package checker_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/proof/torture/checker"
	"github.com/postbox-go/watermill-postbox/proof/torture/history"
	"github.com/postbox-go/watermill-postbox/proof/torture/ledger"
)

// busy is a run with all the trouble that may be, and nothing wrong.
func busy() *world {
	w := newWorld()
	w.Memory = []checker.Sample{{Process: "consumer-1/1", At: began, Bytes: 50 << 20}}
	w.hold("a", 1, 20)
	w.hold("", 1, 0)
	w.hold("b", 2, 0)
	w.hold("c", 3, 20) // after the lease of b was over
	w.Database.OldestClaim, w.Database.NewestClaim = began, w.now

	w.say("forwarder-1/1", history.Tailed, "", "").Number = 3
	w.plain("first", ledger.Orders, "k")
	w.say("driver/1", history.Fault, "", "").Detail = "kill consumer-1"

	// Transactions whose end nobody learnt, or that had none.
	w.produce("unknown-there", ledger.Orders, "k", history.Plain, history.Unknown)
	w.through("unknown-there")
	w.say("producer-1/1", history.Intended, "unknown-gone", "")
	w.say("producer-1/1", history.Unknown, "unknown-gone", "")
	w.produce("killed-there", ledger.Payments, "k", history.Slow, "")
	w.through("killed-there")
	w.say("producer-1/1", history.Intended, "killed-gone", "")
	w.produce("undone", ledger.Payments, "k", history.Plain, history.RolledBack)

	// Sent by two processes, one of which was asleep, delivered three times, and begun by one that
	// was killed.
	w.produce("often", ledger.Orders, "k", history.Plain, history.Committed)
	w.say("forwarder-2/1", history.Sending, "often", "")
	w.through("often", "accountant")
	w.say("consumer-2/1", history.Saw, "often", "accountant")
	w.say("driver/1", history.Fault, "", "").Detail = "kill consumer-2"
	w.apply("consumer-1/2", "accountant", "often")
	w.say("consumer-1/2", history.Duplicate, "often", "accountant")
	w.say("driver/1", history.Repeated, "often", "")
	w.plain("next", ledger.Orders, "k")
	w.say("forwarder-2/1", history.Sent, "often", "") // it wakes up
	w.say("consumer-1/2", history.Duplicate, "often", "accountant")

	// Failures: two that count, one outage that does not, one in a queue that keeps nothing.
	w.produce("flaky", ledger.Receipts, "", history.Flaky, history.Committed)
	w.through("flaky", "postman")
	for n := range 3 {
		w.fail("consumer-1/2", "postman", "flaky", w.subjectOf("postman", "flaky"), n)
	}
	w.apply("consumer-1/2", "postman", "flaky")
	w.count(stored(1<<40), 1)

	// Poison is dead wherever it goes, its key goes on, and two of the letters are requeued.
	w.produce("poison", ledger.Orders, "k", history.Poison, history.Committed)
	w.through("poison", "accountant", "auditor", "scorer", "reporter")
	w.say("worker-1/1", history.Stored, "poison", "auditor")
	w.die("accountant", "poison", allowed+1) // two copies at the same instant
	w.die("auditor", "poison", allowed)
	w.die("reporter", "poison", allowed)
	w.plain("after", ledger.Orders, "k")
	w.say("operator-1/1", history.Healed, "poison", "scorer")
	w.say("operator-1/1", history.Requeueing, "poison", "scorer")
	w.say("operator-1/1", history.Requeued, "poison", "scorer")
	w.apply("consumer-1/2", "scorer", "poison")
	w.say("forwarder-1/1", history.Sending, "poison", "") // an inbox's letter is published again
	w.leave("poison")
	w.say("operator-1/1", history.Requeueing, "poison", "accountant")

	w.nowhere("lonely", ledger.OutboxAttempts)
	w.say("operator-1/1", history.Requeueing, "lonely", "")
	w.plain("no key", ledger.Orders, "")
	w.Database.Kept = append(w.Database.Kept, checker.Kept{
		ID: w.next(), Queue: "auditor", Message: "after", Created: w.now, Done: w.now,
	})
	return w
}

func TestCheck_accepts_a_run_with_faults_and_no_violation(t *testing.T) {
	t.Parallel()
	report := checker.Check(busy().end())
	require.Empty(t, report.Violations, report.String())
	require.True(t, report.OK())
	require.Empty(t, report.Story)

	counts := report.Counts
	require.NotZero(t, counts.Records)
	counts.Records = 0
	require.Equal(t, checker.Counts{
		Processes: 9, Faults: 2, Intents: 17, Published: 16, Applied: 34, Duplicates: 2,
		Failed: 2 + 3*allowed + 1, Outages: 1, Unfinished: 1, Dead: 4, Requeued: 1, Tailed: 3, Strangers: 1,
	}, counts)
	require.Contains(t, report.Accounts, checker.Account{Consumer: "auditor", Written: 7, Done: 6, Dead: 1})
	require.Contains(t, report.String(), "auditor      written 7 = done 6 + pending 0 + dead 1\n")
	require.NotContains(t, report.String(), "VIOLATED")
}
