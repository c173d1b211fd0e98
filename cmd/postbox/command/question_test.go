package command_test

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/cmd/postbox/command"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// reader reads what a person writes.
type reader func(p []byte) (int, error)

// Read reads.
func (r reader) Read(p []byte) (int, error) { return r(p) }

// asked runs a command at a terminal.
func (b *bench) asked(ctx context.Context, in io.Reader, args ...string) result {
	b.Helper()
	env := b.environment()
	root := command.New(command.Options{
		Interactive: func() bool { return true },
		LookupEnv:   func(name string) (string, bool) { value, ok := env[name]; return value, ok },
	})
	var out, errs bytes.Buffer
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(&out)
	root.SetErr(&errs)
	code := command.Execute(ctx, root)
	return result{out.String(), errs.String(), code}
}

// A person who has several windows open must see which database a question is about.
func TestConfirm_says_what_and_where(t *testing.T) {
	t.Parallel()
	b := shop(t)
	b.ok("migrate", "up", "--deployment", "staging", "--yes")
	r := b.answer("n\n", "dead delete --topic orders --limit 5 --deployment staging")
	require.Equal(t, command.ExitStopped, r.code, r.err)
	for _, part := range []string{"On SQLite, file ", `postbox.db"`, "tables postbox_*", `deployment "staging"`, `--topic "orders" --limit 5`, "1 dead letter"} {
		require.Contains(t, r.err, part)
	}
	require.Contains(t, b.answer("n\n", "dead delete --all").err, "dead letters of --all")
}

// Who is asked sees some of what matches.
func TestConfirm_shows_examples(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	for i := range 5 {
		b.letter(fmt.Sprintf("d-%d", i), "orders", fmt.Sprintf("order %d: declined", 4711+i))
	}
	r := b.answer("n\n", "dead requeue --topic orders").err
	require.Contains(t, r, ", such as:\n  1  consumer billing  topic orders  key customer-1  order 4711: declined\n  2 ")
	require.NotContains(t, r, "4713")
	require.NotContains(t, r, "4714")
	require.Contains(t, r, "order 4715: declined\nRequeue 5 dead letters?")
	r = b.answer("n\n", "dead resolve --like 2 --limit 2 --reason x").err
	require.Contains(t, r, ":\n  1  ")
	require.NotContains(t, r, "such as")
	b.append(b.outbox, draft("m-1", "orders", "customer-1"))
	require.Contains(t, b.answer("n\n", "messages bury --outbox outbox --topic orders --reason x").err, ":\n  1  READY  topic orders  key customer-1  id m-1\nMove 1 message to")
}

// set keeps what another operator changes while its question waits for the answer.
func TestSet_keeps_what_changes_during_the_question(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	b.append(b.outbox, draft("m-1", "orders", "k"))
	b.done(99, "m-0", time.Minute)
	changed := false
	r := b.asked(t.Context(), reader(func(p []byte) (int, error) {
		if !changed {
			changed = true
			b.ok("set", "--page-size", "50")
		}
		return copy(p, "y\n"), nil
	}), "set", "--history", "7d")
	require.Equal(t, command.ExitOK, r.code, r.err)
	require.Equal(t, admin.Settings{PageSize: 50, History: 7 * 24 * time.Hour}, b.infoOf(admin.Outbox("outbox")).Settings)
}

// A signal at the question ends the command, although nothing can interrupt the read.
func TestConfirm_interrupted_is_a_stop(t *testing.T) {
	t.Parallel()
	b := shop(t)
	in, typing := io.Pipe()
	defer func() { require.NoError(t, typing.Close()) }()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := b.asked(ctx, reader(func(p []byte) (int, error) {
		cancel()
		return in.Read(p)
	}), "dead", "delete", "--all")
	require.Equal(t, command.ExitStopped, r.code, r.err)
	require.Contains(t, r.err, "nothing was changed")
	require.Len(t, b.letters(""), 2)
}

// A terminal that is closed ends the command as an interrupt does.
func TestExecute_stops_at_a_hangup(t *testing.T) {
	b := shop(t)
	hangups := make(chan os.Signal, 1) // else one that the command does not take would end the test
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	in, typing := io.Pipe()
	defer func() { require.NoError(t, typing.Close()) }()
	r := b.asked(ctx, reader(func(p []byte) (int, error) {
		if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
			return 0, err
		}
		return in.Read(p)
	}), "dead", "delete", "--all")
	require.Equal(t, command.ExitStopped, r.code, r.err)
	require.NoError(t, ctx.Err(), "the signal has ended it")
}

// --outbox chooses letters, and --through is where the messages of inboxes go.
func TestRequeue_outbox_is_a_filter(t *testing.T) {
	t.Parallel()
	b := shop(t)
	require.Contains(t, b.ok("dead", "requeue", "--queue", "fraud", "--yes"), "0 dead letters requeued.")
	require.Len(t, b.letters(""), 2)
	require.Contains(t, b.answer("n\n", "dead requeue --outbox outbox --error declined --cause unknown --min-attempts 1").err,
		`dead letters of --outbox "outbox" --error "declined" --cause "unknown" --min-attempts 1`)
	require.Contains(t, b.ok("dead", "requeue", "--outbox", "outbox", "--error", "declined", "--yes"), "1 dead letter requeued.")
	b.ok("dead", "requeue", "2", "--through", "second")
}

func TestDead_filters_are_checked(t *testing.T) {
	t.Parallel()
	b := shop(t)
	r := b.run("dead", "list", "--cause", "bad luck", "--min-attempts", "3", "--max-attempts", "2")
	require.Equal(t, command.ExitUsage, r.code)
	require.Contains(t, r.err, `cause: "bad luck" is not one of`)
	require.Contains(t, r.err, "attempts: from 3 to 2 is no range")
	for want, args := range map[string][]string{
		`topic: "\xff" is not text`: {"dead", "list", "--topic", "\xff"},
		"died: from ":               {"dead", "groups", "--died-after", "1h", "--died-before", "2h"},
		`topic: "\x00" is not text`: {"messages", "list", "--topic", "\x00"},
		"created: from ":            {"messages", "bury", "--created-after", "1h", "--created-before", "2h", "--reason", "x", "--yes"},
		"done: from ":               {"messages", "list", "--done", "--done-after", "1h", "--done-before", "2h"},
		"time: from ":               {"audit", "--since", "1h", "--until", "2h"},
		`actor: "\xff" is not text`: {"audit", "--by", "\xff"},
	} {
		r := b.run(args...)
		require.NotZero(t, r.code, want)
		require.Contains(t, r.err, want)
	}
}

// The words say which flag chooses the letters of the same outbox, queue or consumer. An outbox and
// a queue may have the same name.
func TestDead_letters_say_where_they_were(t *testing.T) {
	t.Parallel()
	b := shop(t)
	queue, _, err := b.admin().Messages(t.Context(), admin.Filter{Target: admin.Queue("fraud")})
	require.NoError(t, err)
	outbox, _, err := b.admin().Messages(t.Context(), admin.Filter{Target: admin.Outbox("outbox")})
	require.NoError(t, err)
	require.NoError(t, errorOf(b.admin().Bury(t.Context(), admin.Filter{Target: admin.Queue("fraud"), ID: queue[0].ID}, "why")))
	require.NoError(t, errorOf(b.admin().Bury(t.Context(), admin.Filter{Target: admin.Outbox("outbox"), ID: outbox[0].ID}, "why")))
	for _, list := range []string{b.ok("dead", "list"), b.ok("dead", "groups")} {
		require.Contains(t, list, "queue fraud")
		require.Contains(t, list, "outbox outbox")
		require.Contains(t, list, "consumer billing")
	}
	require.Contains(t, b.ok("dead", "list", "--queue", "fraud", "-o", "jsonl"), `"target":{"kind":"queue","name":"fraud"}`)
}

// The flag comes before the variable, and the audit log shows who acted.
func TestAudit_names_the_actor_of_the_command_line(t *testing.T) {
	t.Parallel()
	b := shop(t)
	env := b.environment()
	env["POSTBOX_ACTOR"] = "night shift"
	require.Zero(t, execute(t.Context(), command.Options{}, env, "pause").code)
	require.Zero(t, execute(t.Context(), command.Options{}, env, "resume", "--actor", "ada").code)
	require.Equal(t, 1, strings.Count(b.ok("audit", "--by", "night shift", "-o", "jsonl"), "\n"))
	require.Contains(t, b.ok("audit", "--by", "ada"), "resume")
	require.Contains(t, b.run("audit", "--limit", "1").err, "There may be more: --before ")
	require.Equal(t, command.ExitUsage, b.run("audit", "--limit", "0").code)
	require.Equal(t, command.ExitUsage, b.run("audit", "--before", "-1").code)
}

// Letters that cannot be requeued stay the first ones of the list.
func TestBulk_limit_goes_past_letters_that_stay(t *testing.T) {
	t.Parallel()
	b := shop(t)
	b.database.Exec(t, "UPDATE postbox_dead_letters SET metadata = ? WHERE id = 1", []byte{0xff})
	r := b.run("dead", "requeue", "--all", "--limit", "1", "--yes")
	require.Contains(t, r.out, "1 dead letter requeued.")
	require.Len(t, b.letters(""), 1)
}

// Ids are requeued in the order in which the letters died, and each once.
func TestBulk_sorts_ids(t *testing.T) {
	t.Parallel()
	b := shop(t)
	require.Contains(t, b.ok("dead", "requeue", "2", "1", "2"), "2 dead letters requeued.")
	messages, _, err := b.admin().Messages(t.Context(), admin.Filter{Target: admin.Outbox("outbox"), Key: "customer-1"})
	require.NoError(t, err)
	ids := make([]string, len(messages))
	for i, m := range messages {
		ids[i] = m.MessageID
	}
	require.Equal(t, []string{"m-1", "d-1", "d-2"}, ids)
}

// With ids the same command does not go on: the letters that are done are not found.
func TestBulk_stopped_with_ids_names_the_next_one(t *testing.T) {
	t.Parallel()
	b := shop(t)
	b.database.Exec(t, "UPDATE postbox_dead_letters SET metadata = ? WHERE id = 1", []byte{0xff})
	r := b.stopped("dead letter 1: ", "dead", "requeue", "1", "2")
	require.Equal(t, command.ExitStopped, r.code, r.err)
	require.Contains(t, r.err, "the next one is that with the id 2")
	require.NotContains(t, r.err, "run the command again")
}

// An address in the wrong place must not bring its password into a log.
func TestExecute_does_not_quote_addresses(t *testing.T) {
	t.Parallel()
	b := shop(t)
	const dsn = "postgres://u:secret@h/shop" //nolint:gosec // no such user
	for _, args := range [][]string{
		{dsn},
		{"queues", dsn},
		{"messages", "show", dsn},
		{"dead", "list", "--died-after", dsn},
		{"drain", "--timeout", dsn},
		{"queues", "-o", dsn},
		{"queues", "--dialect", dsn},
		{"messages", "list", "--outbox", dsn},
		{"dead", "list", "--limit", dsn},
		{"queues", "-d" + dsn},
		{"set", "--attempts", dsn},
	} {
		r := b.run(args...)
		require.NotZero(t, r.code, args)
		require.NotContains(t, r.err, "u:s", args)
		require.NotContains(t, r.out, "secret", args)
	}
}

// A command that looks must not change a file, which may be of another program, or a copy that
// cannot be written to.
func TestAddress_the_journal_mode_is_only_for_files_that_are_made(t *testing.T) {
	t.Parallel()
	mode := func(file string) (mode string) {
		db, err := sql.Open("sqlite", file)
		require.NoError(t, err)
		defer func() { require.NoError(t, db.Close()) }()
		require.NoError(t, db.QueryRowContext(t.Context(), "PRAGMA journal_mode").Scan(&mode))
		return mode
	}
	file := filepath.Join(t.TempDir(), "shop.db")
	env := map[string]string{"POSTBOX_DSN": file}
	require.Zero(t, execute(t.Context(), command.Options{}, env, "migrate", "up").code)
	require.Equal(t, "wal", mode(file))

	db, err := sql.Open("sqlite", file)
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), "PRAGMA journal_mode = DELETE")
	require.NoError(t, err)
	require.NoError(t, db.Close())
	for _, args := range []string{"queues", "doctor", "migrate status", "check", "migrate up"} {
		execute(t.Context(), command.Options{}, env, strings.Fields(args)...)
		require.Equal(t, "delete", mode(file), args)
	}
	r := execute(t.Context(), command.Options{}, map[string]string{"POSTBOX_DSN": "file:" + file + "?mode=ro"}, "queues")
	require.Equal(t, command.ExitOK, r.code, r.err)
}

// What is written while a question waits for the answer is left alone.
func TestConfirm_leaves_alone_what_comes_after_the_question(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	b.append(b.outbox, draft("m-1", "orders", "customer-1"))
	written := false
	r := b.asked(t.Context(), reader(func(p []byte) (int, error) {
		if !written {
			written = true
			require.NoError(t, b.outbox.Append(t.Context(), b.database.DB, spool.Run, []spool.Draft{draft("m-2", "orders", "customer-1")}))
			b.database.Exec(t, "UPDATE postbox_messages SET created_at = created_at + 1000 WHERE message_id = ?", []byte("m-2"))
		}
		return copy(p, "y\n"), nil
	}), "messages", "bury", "--outbox", "outbox", "--topic", "orders", "--reason", "x")
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.err, "Move 1 message")
	require.Contains(t, b.ok("messages", "list"), "m-2")
}
