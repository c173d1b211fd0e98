package checker_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/proof/torture/checker"
	"github.com/postbox-go/watermill-postbox/proof/torture/history"
	"github.com/postbox-go/watermill-postbox/proof/torture/ledger"
)

// requireInOrder finds the parts in the text, each behind the one before it.
func requireInOrder(t *testing.T, text string, parts ...string) {
	t.Helper()
	rest := text
	for _, part := range parts {
		_, after, found := strings.Cut(rest, part)
		require.True(t, found, "%q is not there, or out of its order:\n%s", part, text)
		rest = after
	}
}

func TestReport_tells_the_story_of_the_first_message_with_a_violation(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.plain("distant", ledger.Orders, "k")
	w.plain("before", ledger.Orders, "k")
	w.produce("m", ledger.Orders, "k", history.Plain, history.Committed)
	w.send("forwarder-1/1", "m")
	w.say("driver/1", history.Fault, "", "").Detail = "kill forwarder-1"
	w.say("consumer-2/1", history.Saw, "m", "accountant") // its clock is five hours ahead
	w.fail("consumer-1/1", "accountant", "m", w.subjectOf("accountant", "m"), 1)
	w.fail("consumer-1/1", "accountant", "m", "", 0)
	w.apply("consumer-1/1", "accountant", "m")
	w.applied("m", "accountant", "auditor", "scorer")
	w.leave("m")
	w.bury("auditor", "m", "s", allowed)
	w.wait("scorer", "m")
	w.say("driver/1", history.Fault, "", "").Detail = "much later"
	report := checker.Check(w.end())

	require.True(t, strings.HasPrefix(report.Story, "The story of m, with its neighbours:\n"), report.Story)
	requireInOrder(t, report.Story,
		"producer-1/1:", "committed before [orders k#2 plain]\n",
		"applied before", "database           intent 62 m",
		"forwarder-1/1:", "sent m [orders k#3 plain]\n",
		"driver/1:1         fault · kill forwarder-1\n",
		"consumer-2/1:1     saw m [orders k#3 plain] by accountant\n",
		"failed m [orders k#3 plain] by accountant\n",
		"database           attempt 1 at accountant failed, in host/7: planned m",
		"by accountant (outage)\n",
		"effect 74 at accountant by consumer-1/1 m",
		"intent 76, emitted by accountant for m: m>receipts",
		"done in the outbox, kept as ",
		"of auditor after 4 attempts: planned m",
		"stored in scorer since then as ",
	)
	require.NotContains(t, report.Story, "distant")
	require.NotContains(t, report.Story, "much later")
	require.Contains(t, report.String(), report.Story)
}

func TestReport_of_a_follow_up_tells_where_it_came_from(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.plain("m", ledger.Payments, "")
	w.apply("consumer-1/1", "archivist", "m>statements")
	report := checker.Check(w.end())
	requireInOrder(t, report.Story, "The story of m>statements", "committed m [payments #0 plain]", "applied m>statements")
	require.Equal(t, 1, report.Counts.AppliedTwice)
	require.Zero(t, report.Counts.Lost+report.Counts.OrderViolations)
	require.Contains(t, report.String(), "VIOLATED effect once (G4, F5, F6, F10, F26): 1\n  m>statements has 2 effects at archivist\n")
}

func TestReport_is_of_bounded_length(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.produce("m", ledger.Receipts, "", history.Plain, history.Committed)
	w.through("m", "postman")
	for range 10_000 {
		w.say("consumer-1/1", history.Duplicate, "m", "postman")
	}
	for range 30 {
		w.plain(w.now.Format(time.StampMilli), ledger.Receipts, "", "postman")
	}
	report := checker.Check(w.end())
	require.Equal(t, 31, report.Counts.Lost)
	require.Len(t, report.Violations, 5)
	require.Contains(t, report.String(), "\n  and 26 more\n")
	require.Contains(t, report.String(), "+ not there 31\n")
	require.Contains(t, report.Story, "lines left out\n")
	require.Less(t, strings.Count(report.Story, "\n"), 250)
}

func TestReport_keeps_the_order_of_a_process_whose_clock_was_put_back(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.plain("m", ledger.Receipts, "")
	w.say("consumer-1/1", history.Saw, "m", "postman")
	w.say("consumer-1/1", history.Failed, "m", "postman").At = began.Add(-time.Hour)
	w.effect("postman", "m")
	requireInOrder(t, checker.Check(w.end()).Story, "applied m", "saw m", "failed m")
}

func TestReport_lists_violations_that_concern_no_message(t *testing.T) {
	t.Parallel()
	w := busy()
	w.CaughtUp = checker.NeverCaughtUp
	report := checker.Check(w.end())
	require.Empty(t, report.Story)
	require.Contains(t, report.String(), "VIOLATED caught up (G2, G7, F11, F13): 1\n  something still waited")
}

func TestCheck_reports_no_bound_that_is_not_set(t *testing.T) {
	t.Parallel()
	w := busy()
	w.Bounds = checker.Bounds{}
	w.CaughtUp = 24 * time.Hour
	w.Memory = append(w.Memory, checker.Sample{Bytes: 1 << 50})
	w.Database.NewestClaim = w.now.Add(off)
	report := checker.Check(w.end())
	require.True(t, report.OK(), report.String())
}

func TestCheck_G9_expects_only_the_history_that_the_outbox_was_told_to_keep(t *testing.T) {
	t.Parallel()
	w := busy()
	w.Database.Kept = nil
	w.OutboxKeptSince = w.now
	require.True(t, checker.Check(w.end()).OK())
	w.OutboxKeptSince = time.Time{}
	require.True(t, checker.Check(w.end()).OK())
}

func TestCheck_names_a_message_that_was_never_committed(t *testing.T) {
	t.Parallel()
	w := busy()
	w.send("forwarder-1/1", "undone")
	require.Contains(t, checker.Check(w.end()).Story, "sending undone\n")
}
