package checker_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/proof/torture/checker"
	"github.com/postbox-go/watermill-postbox/proof/torture/history"
	"github.com/postbox-go/watermill-postbox/proof/torture/ledger"
)

// holdings is what the database of the world has.
func (w *world) holdings() checker.Holdings {
	h := checker.Holdings{
		Intents: map[string]bool{}, Effects: map[checker.Work]bool{}, Stored: map[checker.Work]bool{}, Claims: map[string]bool{},
	}
	for _, i := range w.Database.Intents {
		h.Intents[i.Message] = true
	}
	for _, e := range w.Database.Effects {
		h.Effects[checker.Work{Consumer: e.Consumer, Message: e.Message}] = true
	}
	for _, p := range w.Database.Pending {
		h.Stored[checker.Work{Consumer: p.Queue, Message: p.Message}] = true
	}
	for _, l := range w.Database.Letters {
		h.Stored[checker.Work{Consumer: l.Consumer, Message: l.Message}] = true
	}
	return h
}

// fork is the database that will take over, as it is when it is cut off from the old one.
type fork struct {
	since    time.Time
	database checker.Database
	turns    map[string]int64
}

// sever begins the time whose confirmations a failover loses.
func (w *world) sever() fork {
	w.next()
	d := w.Database
	d.Intents, d.Effects = slices.Clone(d.Intents), slices.Clone(d.Effects)
	d.Letters, d.Failures = slices.Clone(d.Letters), slices.Clone(d.Failures)
	d.Pending, d.Kept, d.Leases = slices.Clone(d.Pending), slices.Clone(d.Kept), slices.Clone(d.Leases)
	return fork{w.now, d, maps.Clone(w.turns)}
}

// failOver lets the other database take over, and returns the failover.
func (w *world) failOver(to fork) *checker.Failover {
	w.now = w.now.Add(time.Second)
	leases := w.Database.Leases
	w.Database, w.turns = to.database, to.turns
	w.Failovers = append(w.Failovers, checker.Failover{
		Kind: "failover", Since: to.since, Moved: w.now, Has: w.holdings(), Leases: leases,
	})
	w.next()
	return &w.Failovers[len(w.Failovers)-1]
}

// lossy is a run with a failover that loses all kinds of things, and nothing wrong.
func lossy() *world {
	w := busy()
	// The old primary confirms these before the standby is cut off, and they are in its outbox and
	// queues.
	w.produce("sent", ledger.Orders, "k", history.Plain, history.Committed)
	w.send("forwarder-1/1", "sent")
	w.leave("sent")
	w.say("worker-1/1", history.Stored, "sent", "auditor")
	w.wait("auditor", "sent")
	w.apply("consumer-1/2", "scorer", "sent")
	w.produce("half", ledger.Orders, "k", history.Plain, history.Committed)
	w.wait("", "half")
	w.produce("late", ledger.Receipts, "", history.Plain, history.Committed)
	w.send("forwarder-1/1", "late")
	w.leave("late")
	w.produce("dies", ledger.Receipts, "", history.Poison, history.Committed)
	w.send("forwarder-1/1", "dies")
	w.leave("dies")
	to := w.sever()

	// Lost with the old primary: messages, some of them published; marks; effects; what was stored;
	// letters.
	w.through("half")
	w.plain("gone", ledger.Orders, "k")
	w.produce("unsent", ledger.Orders, "k", history.Plain, history.Committed)
	w.produce("no answer", ledger.Payments, "k", history.Plain, history.Unknown)
	w.send("forwarder-1/1", "no answer")
	w.apply("consumer-1/2", "accountant", "sent")
	w.apply("consumer-1/2", "auditor", "sent")
	w.say("worker-1/1", history.Stored, "sent", "reporter")
	w.apply("consumer-1/2", "postman", "late")
	w.die("postman", "dies", allowed)
	w.say("consumer-1/2", history.Duplicate, "dies", "postman")
	w.hold("lost", 4, 0)
	w.failOver(to)

	// The new one knows nothing of it: what it has in its outbox goes out again, what it has in a
	// queue is handled again, and what the brokers still have is handled as if it were new.
	w.Database.Pending = nil
	w.send("forwarder-2/1", "half")
	w.leave("half")
	w.apply("consumer-1/2", "auditor", "sent")
	w.plain("new", ledger.Orders, "k")
	w.say("forwarder-1/1", history.Sending, "gone", "") // from its memory, before it has noticed
	w.apply("consumer-1/2", "postman", "gone>receipts")
	w.applied("half")                             // from the broker, out of their turns
	w.apply("consumer-1/2", "accountant", "sent") // as this one
	return w
}

func TestCheck_excuses_losses_that_the_new_primary_never_had(t *testing.T) {
	t.Parallel()
	report := checker.Check(lossy().end())
	require.Empty(t, report.Violations, report.String())
	require.Equal(t, 1, report.Counts.Failovers)
	require.Equal(t, 5, report.Counts.LostIntents, "gone, unsent, and what was emitted for gone, half and sent: %s", report)
	require.Equal(t, 3, report.Counts.LostWorks, "sent at the reporter, late and dies")
	lost := checker.LostWorks(lossy().end())
	require.True(t, lost("reporter", "sent"))
	require.False(t, lost("auditor", "sent"), "the new primary had it")
	require.False(t, lost("scorer", "sent"), "it was confirmed before")
	require.False(t, lost("reporter", "unsent"), "it was not confirmed at all")
}

// A message was dead, and a copy of it a duplicate; then it was requeued, and applied in the
// database that was lost. What was confirmed of it before is no sign that the new one had its
// effect. Without a failover, or with a letter that was never requeued, it is lost.
func TestCheck_excuses_requeued_messages_that_were_lost_with_the_old_primary(t *testing.T) {
	t.Parallel()
	for name, requeued := range map[string]bool{"requeued": true, "not requeued": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := busy()
			w.Database.Letters = w.letter() // an operator has resolved it
			if requeued {
				w.requeue()
			}
			to := w.sever()
			w.reportApplied()
			w.failOver(to)
			e := w.end()
			slices.SortStableFunc(e.Records, func(a, b history.Record) int { return strings.Compare(a.Process, b.Process) }) // as they are read
			report := checker.Check(e)
			require.Equal(t, requeued, report.OK(), report.String())
		})
	}
}

// A letter that was requeued, and applied, in the old primary alone is one in the new primary
// still. There it may not vanish.
func TestCheck_excuses_no_missing_dead_letter_that_the_new_primary_had(t *testing.T) {
	t.Parallel()
	for name, kept := range map[string]bool{"kept": true, "lost": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := busy()
			without := w.letter()
			to := w.sever()
			w.requeue()
			w.reportApplied()
			failover := w.failOver(to)
			require.True(t, failover.Has.Stored[checker.Work{Consumer: "postman", Message: "m"}])
			if !kept {
				w.Database.Letters = without
			}
			report := checker.Check(w.end())
			require.Equal(t, kept, report.OK(), report.String())
			if !kept {
				require.Contains(t, report.String(), "is lost to postman: no effect, no dead letter")
			}
			require.False(t, checker.LostWorks(w.end())("postman", "m"))
		})
	}
}

func TestCheck_a_paused_process_may_record_late_what_the_old_primary_confirmed(t *testing.T) {
	t.Parallel()
	for name, lull := range map[string]checker.Trouble{
		"asleep":               {Process: "consumer-1", Sleeps: true},
		"another was asleep":   {Process: "consumer-2", Sleeps: true},
		"it was not asleep":    {Process: "consumer-1", Database: true},
		"it was awake by then": {Process: "consumer-1", Sleeps: true, To: began},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := busy()
			w.produce("m", ledger.Receipts, "", history.Plain, history.Committed)
			w.send("forwarder-1/1", "m")
			w.leave("m")
			w.failOver(w.sever())
			w.say("consumer-1/2", history.Saw, "m", "postman")
			w.say("consumer-1/2", history.Applied, "m", "postman")
			lull.From = w.now.Add(-time.Second)
			if lull.To.IsZero() {
				lull.To = w.now
			}
			w.Troubles = append(w.Troubles, lull)
			report := checker.Check(w.end())
			require.Equal(t, name == "asleep", report.OK(), report.String())
		})
	}
}

func TestHoldings_Follows_finds_losses_that_a_failover_must_not_cause(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.plain("a", ledger.Receipts, "")
	before := w.holdings()
	w.plain("b", ledger.Receipts, "")
	require.NoError(t, w.holdings().Follows(before))
	require.ErrorContains(t, before.Follows(w.holdings()), " b")
	without := w.holdings()
	delete(without.Effects, checker.Work{Consumer: "postman", Message: "a"})
	require.ErrorContains(t, without.Follows(before), "the effect of a")
}

func TestCheck_a_cut_connection_counts_as_an_attempt_only_with_a_fault_of_the_process(t *testing.T) {
	t.Parallel()
	const text = "the handler lost its transaction: the connection was lost, but the database is available: EOF"
	cut := checker.Trouble{Kind: "cut", Process: "consumer-1", Database: true}
	for name, c := range map[string]struct {
		trouble  checker.Trouble
		ago      time.Duration
		recorded string
		allowed  bool
	}{
		"its wire was cut":             {cut, 0, text, true},
		"recorded as something else":   {cut, 0, "planned", false},
		"long before":                  {cut, time.Minute, text, false},
		"another's wire was cut":       {checker.Trouble{Process: "consumer-2", Database: true}, 0, text, false},
		"its wire to a broker was cut": {checker.Trouble{Process: "consumer-1"}, 0, text, false},
		"all connections were ended":   {checker.Trouble{Kind: "terminate", Database: true}, 0, text, true},
		"it was asleep, not cut off":   {checker.Trouble{Process: "consumer-1", Sleeps: true}, 0, text, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := busy()
			c.trouble.From = w.now.Add(-c.ago)
			c.trouble.To = c.trouble.From.Add(100 * time.Millisecond)
			w.Troubles = append(w.Troubles, c.trouble)
			loseTransaction(w, c.recorded)
			report := checker.Check(w.end())
			require.Equal(t, c.allowed, report.OK(), report.String())
			if !c.allowed {
				require.Equal(t, map[string]int{"only failures count": 1}, report.Total)
			}
		})
	}
}
