package command_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/cmd/postbox/command"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// typed is the argument that a command gets when an operator copies a cell of a list into a shell.
func typed(t *testing.T, cell string) string {
	t.Helper()
	argument, err := exec.CommandContext(t.Context(), "sh", "-c", "printf '%s|' "+cell).Output() //nolint:gosec // what a shell makes of the cell is what is tested
	require.NoError(t, err, cell)
	text, isOne := strings.CutSuffix(string(argument), "|")
	require.True(t, isOne && strings.Count(string(argument), "|") == 1, "%s is one argument", cell)
	return text
}

// onlyName is the cell before the time in the only row of a list of paused keys or topics.
func onlyName(t *testing.T, list string) string {
	t.Helper()
	lines := strings.Split(list, "\n")
	require.Len(t, lines, 3, list)
	cell, _, found := strings.Cut(lines[1], "  20")
	require.True(t, found, list)
	return strings.TrimRight(cell, " ")
}

func TestNames_can_be_copied_from_a_list_into_a_shell(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	for key, want := range map[string]string{ //nolint:gosec // no credentials
		"customer-17":              "customer-17",
		"Zoë@example.org/a:b,c=1":  "Zoë@example.org/a:b,c=1",
		"order#17":                 "order#17",
		" lead":                    "' lead'",
		"trail ":                   "'trail '",
		"two  words":               "'two  words'",
		"it's":                     `'it'\''s'`,
		`a"b`:                      `'a"b'`,
		`"quoted"`:                 `'"\"quoted\""'`,
		"customer\x00\xff":         `'"customer\x00\xff"'`,
		"'\x1b":                    `'"'\''\x1b"'`,
		"$(touch pwned); `ls` & *": "'$(touch pwned); `ls` & *'",
		`back\slash`:               `'back\slash'`,
		"~":                        "'~'",
		"#1":                       "'#1'",
		"-":                        "'-'",
	} {
		b.append(b.outbox, draft("m-"+strings.ToValidUTF8(key, "?"), "orders", key))
		require.NoError(t, b.admin().Pause(t.Context(), admin.Filter{Target: admin.Outbox("outbox"), Key: key}))
		cell := onlyName(t, b.ok("keys", "list"))
		require.Equal(t, want, cell)
		argument := typed(t, cell)
		require.Equal(t, 2, strings.Count(b.ok("messages", "list", "--key", argument), "\n"), cell)
		resumed := b.run("keys", "resume", argument)
		require.Equal(t, command.ExitOK, resumed.code, resumed.err)
		require.Empty(t, resumed.err)
		require.Contains(t, resumed.out, "Key "+cell+" of ")
	}
	for _, topic := range []string{" lead", "it's", `"quoted"`, "red\x1b[31m"} {
		require.NoError(t, b.admin().Pause(t.Context(), admin.Filter{Target: admin.Outbox("outbox"), Topic: topic}))
		resumed := b.run("topics", "resume", typed(t, onlyName(t, b.ok("topics", "list"))))
		require.Equal(t, command.ExitOK, resumed.code, resumed.err)
		require.Empty(t, resumed.err)
	}
}

func TestNames_in_quotes_that_do_not_end_are_wrong_usage(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	b.append(b.outbox, draft("m-1", "orders", "k"))
	for _, args := range [][]string{
		{"keys", "pause", `"k`},
		{"topics", "pause", `"k`},
		{"topics", "resume", `"k`},
		{"receipts", "show", `"k`},
		{"messages", "list", "--key", `"k`},
		{"messages", "list", "--outbox", `"k`},
		{"dead", "list", "--consumer", `"k`},
	} {
		r := b.run(args...)
		require.Equal(t, command.ExitUsage, r.code, args)
		require.Contains(t, r.err, "written as the lists print it", args)
	}
}
