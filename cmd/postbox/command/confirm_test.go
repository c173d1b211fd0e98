package command_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/cmd/postbox/command"
)

// What cannot be undone asks first. Without a terminal it refuses, and says what to add.
func TestConfirm_asks_before_what_cannot_be_undone(t *testing.T) {
	t.Parallel()
	for args, question := range map[string]string{
		"dead delete 1":               "Delete 1 dead letter for ever?",
		"dead delete --all":           "Delete 2 dead letters for ever?",
		"dead delete --topic orders":  "Delete 1 dead letter for ever?",
		"dead delete --all --limit 1": "Delete 1 dead letter for ever?",
		"dead resolve 1 --reason x":   "Resolve 1 dead letter, which rules out requeueing?",
		"dead requeue --all":          "Requeue 2 dead letters?",
		"messages bury 1 --reason x":  `Move 1 message of outbox "outbox" to the dead letters?`,
		"set --history 1h":            `Change how long outbox "outbox" keeps messages?`,
		"set --retention 1h":          `Change how long outbox "outbox" keeps messages?`,
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			b := shop(t)
			b.done(99, "m-0", time.Minute)
			before := b.ok("dead", "list") + b.ok("messages", "list") + b.ok("set")

			refused := b.run(strings.Fields(args)...)
			require.Equal(t, command.ExitUsage, refused.code, refused.err)
			require.Contains(t, refused.err, question)
			require.Contains(t, refused.err, "add --yes")
			for _, answer := range []string{"n\n", "\n", "no", "yesterday\n"} {
				declined := b.answer(answer, args)
				require.Equal(t, command.ExitStopped, declined.code, declined.err)
				require.Contains(t, declined.err, question+" ")
				require.Contains(t, declined.err, "nothing was changed")
			}
			silent := b.answer("", args)
			require.Equal(t, command.ExitUsage, silent.code)
			require.Contains(t, silent.err, "add --yes", "the standard input is /dev/null")
			for _, r := range []result{refused, silent} {
				require.Equal(t, 1, strings.Count(r.err, question), r.err)
			}
			require.Equal(t, before, b.ok("dead", "list")+b.ok("messages", "list")+b.ok("set"))

			confirmed := b.answer("Yes\n", args)
			require.Equal(t, command.ExitOK, confirmed.code, confirmed.err)
			require.NotEqual(t, before, b.ok("dead", "list")+b.ok("messages", "list")+b.ok("set"))
		})
	}
}

// Where no message is kept, none can be deleted. Who is asked for nothing learns to write --yes.
func TestConfirm_a_first_history_asks_nothing(t *testing.T) {
	t.Parallel()
	b := shop(t)
	r := b.run("set", "--history", "1h")
	require.Equal(t, command.ExitOK, r.code, r.err)
	require.Equal(t, time.Hour, b.infoOf(admin.Outbox("outbox")).Settings.History)
}

// answer runs a command at a terminal where a person writes this.
func (b *bench) answer(text, args string) result {
	b.Helper()
	var out, errs bytes.Buffer
	env := b.environment()
	root := command.New(command.Options{
		Interactive: func() bool { return true },
		LookupEnv:   func(name string) (string, bool) { value, ok := env[name]; return value, ok },
	})
	root.SetArgs(strings.Fields(args))
	root.SetIn(strings.NewReader(text))
	root.SetOut(&out)
	root.SetErr(&errs)
	code := command.Execute(b.Context(), root)
	return result{out.String(), errs.String(), code}
}

func TestConfirm_without_a_matching_letter_there_is_no_question(t *testing.T) {
	t.Parallel()
	require.Equal(t, "0 dead letters deleted.\n", shop(t).ok("dead", "delete", "--topic", "gone"))
}
