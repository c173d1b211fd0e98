package command_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/cmd/postbox/command"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// stopper ends a context as soon as the text has been written.
type stopper struct {
	text string
	stop context.CancelFunc
	strings.Builder
}

// Write stops if the text is there.
func (s *stopper) Write(p []byte) (int, error) {
	n, err := s.Builder.Write(p)
	if strings.Contains(s.String(), s.text) {
		s.stop()
	}
	return n, err
}

// stopped runs a command that is stopped by a signal when it has printed the text.
func (b *bench) stopped(text string, args ...string) result {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var out strings.Builder
	errs := &stopper{text: text, stop: cancel}
	env := b.environment()
	root := command.New(command.Options{LookupEnv: func(name string) (string, bool) { value, ok := env[name]; return value, ok }})
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(errs)
	code := command.Execute(ctx, root)
	return result{out.String(), errs.String(), code}
}

// A bulk action that is stopped says how far it got. Run again, it goes on, and each letter is
// acted on once.
func TestBulk_stopped_in_the_middle_goes_on_when_it_is_run_again(t *testing.T) {
	t.Parallel()
	const n = 250
	for _, verb := range []string{"requeue", "resolve", "delete"} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				b := newBench(t, database)
				for i := range n {
					b.letter(fmt.Sprintf("d-%03d", i), "orders", "card declined")
				}
				args := []string{"dead", verb, "--topic", "orders", "--yes"}
				if verb == "resolve" {
					args = append(args, "--reason", "paid")
				}
				first := b.stopped("100 dead letters "+verb, args...)
				require.Equal(t, command.ExitStopped, first.code, first.err)
				require.Contains(t, first.err, "interrupted after 100 dead letters: run the command again to go on")
				require.Contains(t, first.out, "100 dead letters "+verb)
				require.Len(t, b.letters(""), n-100)

				second := b.run(args...)
				require.Equal(t, command.ExitOK, second.code, second.err)
				require.Contains(t, second.out, "150 dead letters "+verb)
				require.Empty(t, b.letters(""))
				resolved, requeued := 0, 0
				switch verb {
				case "resolve":
					resolved = n
				case "requeue":
					requeued = n
				}
				require.Len(t, b.letters("yes"), resolved)
				require.Equal(t, requeued, database.Count(t, "SELECT COUNT(*) FROM postbox_messages"))
				require.Equal(t, requeued, database.Count(t, "SELECT COUNT(DISTINCT message_id) FROM postbox_messages"))
				require.Contains(t, b.ok(args...), "0 dead letters "+verb)
			})
		})
	}
}

func (b *bench) letters(resolved string) []admin.DeadLetter {
	b.Helper()
	letters, _, err := b.admin().DeadLetters(b.Context(), admin.Filter{Resolved: resolved, Limit: 1000})
	require.NoError(b, err)
	return letters
}

// What cannot be requeued stays, is named, and holds up nothing.
func TestBulk_goes_on_after_letters_that_cannot_be_requeued(t *testing.T) {
	t.Parallel()
	b := shop(t)
	b.database.Exec(t, "UPDATE postbox_dead_letters SET metadata = ? WHERE id = 1", []byte{0xff})
	r := b.run("dead", "requeue", "--all", "--yes")
	require.Equal(t, command.ExitError, r.code)
	require.Contains(t, r.out, "1 dead letter requeued.")
	require.Contains(t, r.err, "dead letter 1: ")
	require.Contains(t, r.err, "1 dead letter is not requeued")
	require.Len(t, b.letters(""), 1)
}

// The order within a key is that in which the letters died.
func TestBulk_requeues_in_order(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	for i := range 20 {
		b.letter(fmt.Sprintf("d-%02d", i), "orders", "card declined")
	}
	b.ok("dead", "requeue", "--all", "--limit", "15", "--yes")
	require.Len(t, b.letters(""), 5)
	b.ok("dead", "requeue", "--all", "--yes")
	messages, _, err := b.admin().Messages(t.Context(), admin.Filter{Target: admin.Outbox("outbox")})
	require.NoError(t, err)
	require.Len(t, messages, 20)
	for i, m := range messages {
		require.Equal(t, fmt.Sprintf("d-%02d", i), m.MessageID)
	}
}

// A letter that dies after the command has begun is left alone: its message may be one that was
// requeued and failed again.
func TestBulk_leaves_letters_that_die_meanwhile(t *testing.T) {
	t.Parallel()
	b := shop(t)
	b.database.Exec(t, "UPDATE postbox_dead_letters SET died_at = ? WHERE id = 2", written.AddDate(10, 0, 0).UnixMicro())
	require.Contains(t, b.ok("dead", "requeue", "--all", "--yes"), "1 dead letter requeued.")
	require.Contains(t, b.ok("dead", "delete", "--died-before", "2100-01-01T00:00:00Z", "--yes"), "0 dead letters deleted.")
}
