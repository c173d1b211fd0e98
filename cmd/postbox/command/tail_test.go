package command_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/cmd/postbox/command"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// watched is an output that calls a function with all of it after each write.
type watched struct {
	text  strings.Builder
	wrote func(all string)
}

// Write keeps the text.
func (w *watched) Write(p []byte) (int, error) {
	n, err := w.text.Write(p)
	w.wrote(w.text.String())
	return n, err
}

// String returns all of it.
func (w *watched) String() string { return w.text.String() }

// tailed runs tail until the text is printed, and returns what it has printed. It calls first after
// the first line.
func (b *bench) tailed(first func(), text string, args ...string) (string, int) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	once := sync.OnceFunc(first)
	out := &watched{wrote: func(all string) {
		once()
		if strings.Contains(all, text) {
			cancel()
		}
	}}
	env := b.environment()
	root := command.New(command.Options{LookupEnv: func(name string) (string, bool) { value, ok := env[name]; return value, ok }})
	root.SetArgs(append([]string{"tail", "--interval", "100ms"}, args...))
	root.SetOut(out)
	root.SetErr(&strings.Builder{})
	code := command.Execute(ctx, root)
	require.Contains(b, out.String(), text)
	return out.String(), code
}

// done writes a message into the history, so long ago.
func (b *bench) done(id int, message string, ago time.Duration) {
	b.Helper()
	b.database.Exec(b.T, `INSERT INTO postbox_history (id, spool, topic, message_id, ordering_key, payload, metadata, created_at, done_at, attempts)
		VALUES (?, ?, 'orders', ?, ?, ?, ?, 1, ?, 1)`, id, b.outboxID(), []byte(message), []byte("k\x1b"), []byte("{}"), []byte("{}"), time.Now().Add(-ago).UnixMicro())
}

func TestTail_shows_what_is_done_and_what_dies_once(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.append(b.outbox, draft("to bury", "orders", "k"))
		b.done(901, "long ago", time.Hour)
		b.done(902, "m-1", 3*time.Minute)
		b.done(903, "m-2", 2*time.Minute)
		bury := func() {
			require.NoError(t, errorOf(b.admin().Bury(t.Context(), admin.Filter{Target: admin.Outbox("outbox"), ID: 1}, "not needed")))
		}
		out, code := b.tailed(bury, "not needed", "--since", "10m")
		require.Equal(t, command.ExitOK, code)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		require.Len(t, lines, 3, "each once: %s", out)
		for i, want := range []string{`DONE  902  orders  m-1  '"k\x1b"'`, `DONE  903  orders  m-2  '"k\x1b"'`, `DEAD  1  orders  'to bury'  k  buried by an operator: not needed`} {
			require.Contains(t, lines[i], want)
		}
	})
}

// The help says which messages are missing: those whose transaction commits after one whose time is
// more than 5 s later is shown.
func TestTail_shows_messages_that_commit_up_to_five_seconds_late(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	b.done(901, "first", 30*time.Second)
	out, code := b.tailed(func() {
		b.done(902, "too late", 36*time.Second)
		b.done(903, "late", 34*time.Second)
		b.done(904, "last", 20*time.Second)
	}, "last", "--since", "10m")
	require.Equal(t, command.ExitOK, code)
	require.Regexp(t, `(?s)^\S+  DONE  901.*DONE  903  orders  late.*DONE  904[^\n]*\n$`, out)
	require.NotContains(t, out, "too late")
}

func TestTail_shows_what_an_inbox_has_handled_and_buried(t *testing.T) {
	t.Parallel()
	b := consumer(t)
	b.database.Exec(t, "UPDATE postbox_history SET done_at = ?", time.Now().UnixMicro())
	b.database.Exec(t, `INSERT INTO postbox_dead_letters (origin, subject, consumer, topic, message_id, payload, metadata, created_at, died_at, attempts, error)
		VALUES (1, 's', 'billing', 'orders', 'r-dead', '{}', '{}', 1, ?, 3, 'refused'), (1, 's', 'other', 'orders', 'not mine', '{}', '{}', 1, ?, 3, 'refused')`,
		time.Now().UnixMicro(), time.Now().UnixMicro())
	out, code := b.tailed(func() {}, "r-dead", "--inbox", "billing", "--since", "10m")
	require.Equal(t, command.ExitOK, code)
	require.Regexp(t, `DONE  \d+  \S+  r-001`, out)
	require.Contains(t, out, "refused")
	require.NotContains(t, out, "not mine")
	require.Contains(t, b.run("tail", "--inbox", "none").err, "not found")
}

func TestTail_prints_JSON_lines_and_refuses_what_has_no_end(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	b.done(901, "m-1", time.Minute)
	out, _ := b.tailed(func() {}, "m-1", "--since", "10m", "--topic", "orders", "-o", "jsonl")
	require.Regexp(t, `^\{"at":"[^"]+","outcome":"DONE","id":901,"topic":"orders","message_id":"m-1","key":"k\\u001b","attempts":1\}\n$`, out)
	for args, mistake := range map[string]string{
		"-o json": "use jsonl instead of json", "--interval 1ms": "at least 100ms", "--since yesterday": "is no time",
	} {
		r := b.run(append([]string{"tail"}, strings.Fields(args)...)...)
		require.Equal(t, command.ExitUsage, r.code, args)
		require.Contains(t, r.err, mistake)
	}
}

// Nothing of what is done would be shown, which looks as if nothing was done.
func TestTail_says_that_no_history_is_kept(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	b.append(b.outbox, draft("m-1", "orders", "k"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	said := &watched{wrote: func(all string) {
		if strings.Contains(all, "Its history is empty") {
			cancel()
		}
	}}
	env := b.environment()
	root := command.New(command.Options{LookupEnv: func(name string) (string, bool) { value, ok := env[name]; return value, ok }})
	root.SetArgs([]string{"tail"})
	root.SetOut(&strings.Builder{})
	root.SetErr(said)
	command.Execute(ctx, root)
	require.Contains(t, said.String(), "only dead letters are shown")
}
