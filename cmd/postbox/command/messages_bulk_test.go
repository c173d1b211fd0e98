package command_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/cmd/postbox/command"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// A bulk action that is stopped says how far it got. Run again, it goes on, and each message is
// acted on once.
func TestBulkOfMessages_stopped_in_the_middle_goes_on_when_it_is_run_again(t *testing.T) {
	t.Parallel()
	const n = 250
	for verb, flags := range map[string][]string{"run-now": nil, "reschedule": {"--at", "1h"}, "bury": {"--reason", "wrong"}} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				b := newBench(t, database)
				drafts := make([]spool.Draft, n)
				for i := range drafts {
					drafts[i] = draft(fmt.Sprintf("m-%03d", i), "orders", fmt.Sprint(i))
				}
				b.append(b.outbox, drafts...)
				database.Exec(t, "UPDATE postbox_messages SET state = 2, attempts = 3, available_at = ?", int64(dialect.ParkedFrom))
				database.MoveWaiting(t)
				left := func() int {
					return database.Count(t, "SELECT COUNT(*) FROM postbox_messages WHERE available_at >= ?", int64(dialect.ParkedFrom))
				}
				args := append([]string{"messages", verb, "--status", "parked", "--yes"}, flags...)
				first := b.stopped("100 messages", args...)
				require.Equal(t, command.ExitStopped, first.code, first.err)
				require.Contains(t, first.err, "interrupted after 100 messages: run the command again to go on")
				require.Equal(t, n-100, left())
				second := b.run(args...)
				require.Equal(t, command.ExitOK, second.code, second.err)
				require.Contains(t, second.out, "150 messages")
				require.Zero(t, left())
				require.Equal(t, n, database.Count(t, "SELECT COUNT(*) FROM postbox_messages")+database.Count(t, "SELECT COUNT(*) FROM postbox_dead_letters"))
			})
		})
	}
}

func TestBulkOfMessages_asks_before_it_acts_on_what_filters_choose(t *testing.T) {
	t.Parallel()
	b := incident(t)
	for args, question := range map[string]string{
		"run-now --all":           "Let 2 messages be handled now?",
		"run-now --status parked": "Let 1 message be handled now?",
		"reschedule --min-attempts 1 --at 2030-01-01T00:00:00Z": "Let 2 messages wait until 2030-01-01T00:00:00Z?",
		"bury --key customer-1 --limit 2 --reason wrong":        "Move 2 messages to the dead letters?",
	} {
		r := b.run(append([]string{"messages"}, append(strings.Fields(args), "--queue", "fraud")...)...)
		require.Equal(t, command.ExitUsage, r.code, args)
		require.Contains(t, r.err, question)
		require.Contains(t, r.err, `messages of queue "fraud" with --`, args)
	}
	for args, mistake := range map[string]string{
		"run-now":                               "no messages are chosen",
		"run-now 1 --status parked":             "by ids, or by filters, and not by both",
		"run-now 1 --limit 3":                   "--limit is for filters",
		"run-now --all --limit -1":              "--limit: -1 is negative",
		"run-now --status ready":                "a ready message is handled as soon as possible",
		"run-now --status gone":                 "is not one of ready, scheduled, retrying and parked",
		"bury --min-attempts -1 --reason wrong": "--min-attempts: -1 is negative",
		"list --done --error declined":          "are for pending messages, without --done",
	} {
		r := b.run(append([]string{"messages"}, append(strings.Fields(args), "--queue", "fraud")...)...)
		require.Equal(t, command.ExitUsage, r.code, args)
		require.Contains(t, r.err, mistake, args)
	}
	require.Equal(t, 6, b.database.Count(t, "SELECT COUNT(*) FROM postbox_messages"), "nothing was changed")
	require.Contains(t, b.ok("messages", "bury", "--queue", "fraud", "--error", "of nothing", "--reason", "wrong"), "0 messages buried")
}
