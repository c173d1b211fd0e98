package command_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/cmd/postbox/command"
)

// An unset variable of a script must not widen what a command acts on.
func TestExecute_refuses_an_empty_flag(t *testing.T) {
	t.Parallel()
	b := shop(t)
	for flag, args := range map[string][]string{
		"--queue":   {"pause", "--queue", ""},
		"--topic":   {"dead", "delete", "--topic", "", "--all", "--yes"},
		"--outbox":  {"keys", "pause", "k", "--outbox="},
		"--key":     {"messages", "list", "--key", ""},
		"--history": {"set", "--history", "", "--yes"},
	} {
		r := b.run(args...)
		require.Equal(t, command.ExitUsage, r.code, args)
		require.Contains(t, r.err, flag+" is empty", args)
	}
	require.Len(t, b.letters(""), 2)
	require.True(t, b.infoOf(admin.Outbox("outbox")).Pause.Since.IsZero())
	b.ok("queues", "--deployment", "", "--prefix", "")
}
