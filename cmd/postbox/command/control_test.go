package command_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/cmd/postbox/command"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

func (b *bench) infoOf(target admin.Target) admin.QueueInfo {
	b.Helper()
	queues, err := b.admin().Queues(b.Context())
	require.NoError(b, err)
	for _, info := range queues {
		if info.Target == target {
			return info
		}
	}
	b.Fatalf("there is no %s", target)
	return admin.QueueInfo{}
}

func TestPause_and_resume(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.append(b.queue, draft("m-1", "fraud", "k"))
		b.ok("pause", "--queue", "fraud")
		require.False(t, b.infoOf(admin.Queue("fraud")).Pause.Since.IsZero())
		require.Contains(t, b.ok("queues"), "paused")
		b.ok("resume", "--queue", "fraud")
		require.True(t, b.infoOf(admin.Queue("fraud")).Pause.Since.IsZero())
		b.ok("keys", "pause", "k", "--queue", "fraud")
		require.Contains(t, b.ok("keys", "list", "--queue", "fraud"), "\nk ")
		b.ok("keys", "resume", "k", "--queue", "fraud")
		require.NotContains(t, b.ok("keys", "list", "--queue", "fraud"), "\nk ")
	})
}

func TestPause_has_a_reason_an_owner_and_an_end(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.append(b.outbox, draft("m-1", "orders", "k"))
		require.Contains(t, b.ok("topics", "pause", "orders", "--reason", "new broker", "--until", "04:00", "--actor", "alice"), "T04:00:00Z, for ")
		list := b.ok("topics", "list")
		require.Contains(t, list, "alice")
		require.Contains(t, list, "new broker")
		topics, err := b.admin().Paused(t.Context(), admin.Outbox("outbox"))
		require.NoError(t, err)
		require.WithinRange(t, topics[0].Until, topics[0].Since, topics[0].Since.Add(24*time.Hour))
		require.Contains(t, b.ok("audit"), "new broker; until")

		b.ok("pause", "--until", "+2h", "--reason", "failover", "--actor", "bob")
		whole := b.infoOf(admin.Outbox("outbox")).Pause
		require.WithinDuration(t, whole.Since.Add(2*time.Hour), whole.Until, time.Hour)
		require.Contains(t, b.ok("queues"), "paused until ")
		require.Contains(t, b.ok("queues", "-o", "json"), `"pause_reason":"failover"`)
		require.Regexp(t, `has been paused since .*, until .*, by bob \(failover\), with 1 message pending`, execute(t.Context(), command.Options{}, b.environment(), "doctor").out)
		b.ok("keys", "pause", "k", "--reason", "poison", "--actor", "carol")
		require.Regexp(t, `k +\S+ +carol +poison`, b.ok("keys", "list"))

		r := execute(t.Context(), command.Options{}, b.environment(), "pause", "--until", "2026-01-01T00:00:00Z")
		require.Equal(t, command.ExitUsage, r.code, r.err)
		require.Contains(t, r.err, "until: 2026-01-01T00:00:00Z has passed: it is")
	})
}

func TestDrain_says_that_it_was_interrupted(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	b.append(b.outbox, draft("m-1", "orders", "k"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	r := execute(ctx, command.Options{}, b.environment(), "drain")
	require.Equal(t, command.ExitStopped, r.code)
	require.Contains(t, r.err, "interrupted after")
}

// set changes what its flags name, and keeps the rest.
func TestSet_changes_what_its_flags_name(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	b.append(b.outbox, draft("m-1", "orders", "k"))
	stored := func() admin.Settings { return b.infoOf(admin.Outbox("outbox")).Settings }

	b.ok("set", "--page-size", "50", "--concurrency", "8", "--poll-max", "2s")
	b.ok("set", "--attempts", "unlimited", "--per-second", "0.5", "--max-concurrent", "none", "--history", "7d", "--retention", "forever", "--yes")
	want := admin.Settings{PageSize: 50, Concurrency: 8, PollMax: 2 * time.Second, Attempts: -1, PerSecond: 0.5, MaxConcurrent: -1, History: 7 * 24 * time.Hour, Retention: -1}
	require.Equal(t, want, stored())
	require.Contains(t, b.ok("set"), "retention:       forever")
	require.Contains(t, b.ok("set"), "per-second:      0.5, one message in 2s\n")
	require.Equal(t, want, stored(), "without a flag it changes nothing")
	require.JSONEq(t, `{"target":{"kind":"outbox","name":"outbox"},"settings":
		{"page_size":50,"concurrency":8,"poll_max":"2s","attempts":-1,"per_second":0.5,"max_concurrent":-1,"history":"168h0m0s","retention":"forever"}}`, b.ok("set", "-o", "json"))

	b.ok("set", "--page-size", "default", "--concurrency", "default", "--poll-max", "default", "--attempts", "5", "--per-second", "default", "--max-concurrent", "20", "--history", "off", "--retention", "default", "--yes")
	require.Equal(t, admin.Settings{Attempts: 5, MaxConcurrent: 20, History: -1}, stored())

	b.ok("set", "--page-size", "10000", "--concurrency", "10000", "--poll-max", "1h", "--attempts", "2147483647", "--per-second", "1e6", "--max-concurrent", "2147483647", "--history", "36500d", "--retention", "1s", "--yes")
	b.ok("set", "--page-size", "1", "--concurrency", "1", "--poll-max", "1ms", "--attempts", "1", "--per-second", "0.00001", "--max-concurrent", "1", "--history", "1s", "--retention", "36500d", "--yes")
}

func TestDrain_ends_when_the_last_message_is_gone(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.append(b.outbox, draft("m-1", "orders", "k"))
		done := make(chan result, 1)
		go func() { done <- execute(t.Context(), command.Options{}, b.environment(), "drain", "--timeout", "1m") }()
		database.Exec(t, "DELETE FROM postbox_messages")
		r := <-done
		require.Equal(t, command.ExitOK, r.code, r.err)
		require.Contains(t, r.out, "yes")
	})
}

// An operator must not wait for what does not end by itself.
func TestDrain_says_what_keeps_messages(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		later := draft("m-1", "orders", "k")
		later.Delay = time.Hour
		b.append(b.outbox, later)
		b.append(b.queue, draft("m-2", "fraud", "k"))
		require.NoError(t, b.admin().Pause(t.Context(), admin.Filter{Target: admin.Queue("fraud"), All: true}))
		r := b.run("drain", "--timeout", "0s")
		require.Equal(t, command.ExitFound, r.code)
		require.Contains(t, r.err, `not empty after 0s: 2 of 2 outboxes or queues; queue "fraud" has 1 message and no process that handles them. See: postbox lanes --members --queue fraud; queue "fraud" has been paused since `)
		require.Contains(t, r.err, `See: postbox resume --queue fraud; outbox "outbox": none is due yet`+"\n")
		require.NotContains(t, b.run("drain", "--timeout", "0s", "--outbox", "outbox").err, "fraud")
	})
}

// A message that is scheduled for later is not late, and one whose time has come is.
func TestCheck_counts_from_when_a_message_is_due(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		later := draft("m-1", "orders", "k")
		later.Delay = time.Hour
		b.append(b.outbox, later)
		require.Equal(t, 1, strings.Count(b.ok("check"), "\n"), "nothing is due")

		b.append(b.outbox, draft("m-2", "orders", "k2"))
		require.Equal(t, command.ExitFound, b.run("check").code)
		require.Equal(t, command.ExitFound, b.run("check", "--outbox", "outbox").code)
		b.append(b.queue, draft("m-3", "fraud", "k"))
		database.Exec(t, "DELETE FROM postbox_messages WHERE message_id = ?", []byte("m-2"))
		r := b.run("check", "--outbox", "outbox")
		require.Equal(t, command.ExitOK, r.code, r.err)
		require.Equal(t, command.ExitFound, b.run("check", "--queue", "fraud").code)
	})
}

// An operator wants a pause, but not a forgotten one. Paused topics and keys are no excuse, as in
// the alert PostboxBacklogOld.
func TestCheck_a_pause_is_no_problem_until_it_is_forgotten(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.append(b.outbox, draft("m-1", "orders", "k"))
		b.append(b.queue, draft("m-2", "fraud", "k"))
		require.NoError(t, b.admin().Pause(t.Context(), admin.Filter{Target: admin.Queue("fraud"), All: true}))
		b.ok("check", "--queue", "fraud")
		require.Equal(t, command.ExitFound, b.run("check").code, "the outbox is not paused")

		require.NoError(t, b.admin().Pause(t.Context(), admin.Filter{Target: admin.Outbox("outbox"), Topic: "orders"}))
		require.NoError(t, b.admin().Pause(t.Context(), admin.Filter{Target: admin.Outbox("outbox"), Key: "k"}))
		require.Equal(t, command.ExitFound, b.run("check", "--outbox", "outbox").code)

		require.NoError(t, b.admin().Pause(t.Context(), admin.Filter{Target: admin.Outbox("outbox"), All: true}))
		r := b.run("check")
		require.Equal(t, command.ExitOK, r.code, r.err)
		require.Regexp(t, `queue fraud +\d+d\d+h +paused\n`, r.out)
		require.Contains(t, r.err, `The queue "fraud" has been paused for `)
		require.Contains(t, r.err, `"postbox resume --queue fraud" lets them go on`)
		require.Contains(t, b.ok("check", "-o", "jsonl"), `,"paused_seconds":`)

		database.Exec(t, "UPDATE postbox_spools SET paused_at = paused_at - ? WHERE name = ?", (2 * time.Hour).Microseconds(), "outbox")
		r = b.run("check")
		require.Equal(t, command.ExitFound, r.code, r.out)
		require.Contains(t, r.err, "postbox: due messages wait in 1 outbox or queue, paused for more than 1h0m0s\n")
		b.ok("check", "--max-pause", "3h")
		require.Equal(t, command.ExitFound, b.run("check", "--max-pause", "0s").code)
		b.ok("check", "--max-pause", "0s", "--max-age", "36500d")
	})
}

// --watch prints until a signal comes, which is its normal end.
func TestQueues_watch_ends_with_a_signal(t *testing.T) {
	t.Parallel()
	b := shop(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	env := b.environment()
	root := command.New(command.Options{LookupEnv: func(name string) (string, bool) { value, ok := env[name]; return value, ok }})
	root.SetArgs([]string{"queues", "--watch", "--interval", "1s"})
	out := &stopper{text: "OLDEST DUE", stop: cancel}
	root.SetOut(out)
	require.Equal(t, command.ExitOK, command.Execute(ctx, root))
	require.NotContains(t, out.String(), "\x1b", "the output is no terminal")
}

func TestMessages_run_now_reschedule_and_bury(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		later := draft("m-1", "orders", "k")
		later.Delay = time.Hour
		b.append(b.outbox, later)
		list, _, err := b.admin().Messages(t.Context(), admin.Filter{Target: admin.Outbox("outbox")})
		require.NoError(t, err)
		id := strings.Fields(strings.Split(b.ok("messages", "list"), "\n")[1])[0]
		require.Contains(t, b.ok("messages", "show", id), "Status:      SCHEDULED")

		b.ok("messages", "reschedule", id, "--at", "2h")
		moved, err := b.admin().Message(t.Context(), admin.Filter{Target: admin.Outbox("outbox"), ID: list[0].ID})
		require.NoError(t, err)
		require.WithinDuration(t, list[0].DueAt.Add(time.Hour), moved.DueAt, time.Minute)
		b.ok("messages", "run-now", id)
		require.Contains(t, b.ok("queues"), "outbox")
		require.Contains(t, b.ok("messages", "bury", id, "--reason", "wrong", "--yes"), "1 message buried.")
		require.Contains(t, b.ok("dead", "list"), "wrong")
	})
}

// A typing error would let an operator believe that nothing is published.
func TestTopics_pause_asks_if_nobody_has_seen_the_topic(t *testing.T) {
	t.Parallel()
	b := shop(t)
	r := b.answer("n\n", "topics pause order")
	require.Equal(t, command.ExitStopped, r.code, r.err)
	require.Contains(t, r.err, "No message of topic order is pending, in the history or a dead letter. Pause it all the same?")
	require.NotContains(t, b.ok("topics", "list"), "order")
	b.ok("topics", "pause", "order", "--yes")
	b.ok("topics", "pause", "orders")
}
