package command_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/cmd/postbox/command"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// shop is a database in which each command has something to show.
func shop(t *testing.T) *bench {
	t.Helper()
	b := newBench(t, testdb.SQLite(t))
	b.append(b.outbox, draft("m-1", "orders", "customer-1"), draft("m-2", "orders", "customer-2"), draft("m-3", "invoices", "customer-3"))
	b.append(b.queue, draft("m-4", "fraud", "customer-1"))
	delayed := draft("m-5", "orders", "customer-5")
	delayed.Due = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	b.append(b.outbox, delayed)
	b.letter("d-1", "orders", "card declined")
	b.letter("d-2", "invoices", "no such customer")
	ada := admin.ContextWithActor(t.Context(), "ada@office")
	require.NoError(t, b.admin().Pause(ada, admin.Filter{Target: admin.Outbox("outbox"), Key: "customer-2"}))
	_, err := b.admin().Resolve(ada, admin.Filter{Topic: "none"}, "a drill")
	require.NoError(t, err)
	require.NoError(t, b.admin().Pause(ada, admin.Filter{Target: admin.Outbox("outbox"), Topic: "invoices"}))
	return b
}

// Each command in each format, on the same database.
func TestOutput_of_each_command_in_each_format(t *testing.T) {
	t.Parallel()
	eachOutput(t, shop, map[string]string{
		"migrate-up":         "migrate up",
		"migrate-status":     "migrate status",
		"doctor":             "doctor",
		"queues":             "queues",
		"messages-list":      "messages list",
		"messages-queue":     "messages list --queue fraud",
		"messages-filter":    "messages list --topic orders --status ready",
		"messages-limit":     "messages list --limit 1",
		"messages-none":      "messages list --done",
		"messages-show":      "messages show 1",
		"messages-run-all":   "messages run-now --status scheduled --yes",
		"messages-bury-all":  "messages bury --topic orders --created-before 2026-02-01T00:00:00Z --reason wrong --yes",
		"messages-run-now":   "messages run-now 5",
		"messages-resched":   "messages reschedule 5 --at 2030-01-01T12:00:00Z",
		"messages-bury":      "messages bury 1 2 --reason wrong --yes",
		"dead-list":          "dead list",
		"dead-filter":        "dead list --topic orders --consumer billing --died-after 2026-01-01T00:00:00Z",
		"dead-show":          "dead show 1",
		"dead-requeue":       "dead requeue 1",
		"dead-requeue-all":   "dead requeue --all --yes",
		"dead-resolve":       "dead resolve 1 --reason paid --yes",
		"dead-delete":        "dead delete --topic invoices --yes",
		"dead-filters":       "dead list --outbox outbox --key customer-1 --error declined --cause unknown --min-attempts 1 --max-attempts 1",
		"dead-groups":        "dead groups",
		"dead-groups-limit":  "dead groups --limit 1",
		"audit":              "audit",
		"replay-none":        "replay --queue fraud --done-after 2026-01-01T00:00:00Z --yes",
		"keys-list":          "keys list",
		"keys-pause":         "keys pause customer-1",
		"keys-resume":        "keys resume customer-2",
		"topics-list":        "topics list",
		"topics-pause":       "topics pause orders",
		"topics-resume":      "topics resume orders",
		"pause":              "pause",
		"resume":             "resume --queue fraud",
		"set":                "set --concurrency 8 --attempts unlimited --poll-max 2s",
		"drain":              "drain --timeout 0s",
		"check":              "check --max-age 5m",
		"check-without-late": "check --max-age 36500d",
	})
}

// eachOutput compares the output of commands with the golden files of their names, each on a
// database of its own.
func eachOutput(t *testing.T, make func(t *testing.T) *bench, commands map[string]string) {
	t.Helper()
	for name, args := range commands {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var text strings.Builder
			for _, format := range []string{"table", "json", "jsonl"} {
				r := make(t).run(append(strings.Fields(args), "-o", format)...)
				fmt.Fprintf(&text, "$ postbox %s -o %s\n%s", args, format, r.out)
				if r.err != "" {
					fmt.Fprintf(&text, "-- standard error\n%s", r.err)
				}
				fmt.Fprintf(&text, "-- exit code %d\n\n", r.code)
			}
			golden(t, "testdata/"+name+".golden", steady(text.String()))
		})
	}
}

func TestOutput_migrations_as_SQL(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"postgresql", "mysql", "sqlite"} {
		r := execute(t.Context(), command.Options{}, nil, "migrate", "sql", "--dialect", kind, "--prefix", "shop_")
		require.Zero(t, r.code, r.err)
		require.Contains(t, r.out, "shop_spools (")
		later := execute(t.Context(), command.Options{}, nil, "migrate", "sql", "--dialect", kind, "--from", "1")
		require.Zero(t, later.code, later.err)
		require.NotContains(t, later.out, "postbox_spools (")
		require.Contains(t, later.out, "postbox_version (")
	}
	r := execute(t.Context(), command.Options{}, nil, "migrate", "sql")
	require.Equal(t, command.ExitUsage, r.code)
	require.Contains(t, r.err, "set --dialect")
}

// A list of more than a page is read page by page.
func TestOutput_lists_of_many_pages(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	drafts := make([]spool.Draft, 2100)
	for i := range drafts {
		drafts[i] = draft(fmt.Sprintf("m-%04d", i), "orders", "")
	}
	b.append(b.outbox, drafts...)
	out := b.ok("messages", "list", "--limit", "0", "-o", "jsonl")
	seen := map[string]bool{}
	for line := range strings.Lines(out) {
		seen[line] = true
	}
	require.Len(t, seen, len(drafts))
	require.Equal(t, 1500, strings.Count(b.ok("messages", "list", "--limit", "1500", "-o", "jsonl"), "\n"))

	first := b.run("messages", "list", "--limit", "2")
	require.Contains(t, first.err, "--after ")
	_, cursor, _ := strings.Cut(strings.TrimSpace(first.err), "--after ")
	second := b.ok("messages", "list", "--limit", "2", "--after", cursor)
	require.NotContains(t, second, strings.Fields(strings.Split(first.out, "\n")[1])[3])
}
