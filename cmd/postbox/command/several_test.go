package command_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/cmd/postbox/command"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// two returns the commands on two databases, of which the first has a message and a letter, and the
// second two messages.
func two(t *testing.T) (run func(args ...string) result, first, second *bench) {
	t.Helper()
	first, second = newBench(t, testdb.SQLite(t)), newBench(t, testdb.SQLite(t))
	first.append(first.outbox, draft("a", "orders", ""))
	first.letter("dead", "orders", "no such customer")
	second.append(second.outbox, draft("b", "orders", ""), draft("c", "orders", ""))
	return func(args ...string) result {
		return execute(t.Context(), command.Options{}, first.environment(), append(args, "--dsn", first.database.DSN, "--dsn", second.database.DSN)...)
	}, first, second
}

func TestSeveral_databases_are_shown_one_after_the_other_and_summed_up(t *testing.T) {
	t.Parallel()
	run, _, _ := two(t)
	r := run("queues")
	require.Equal(t, command.ExitOK, r.code, r.err)
	require.Equal(t, 2, strings.Count(r.out, "OUTBOX OR QUEUE"), r.out)
	require.Contains(t, r.out, "All together: 3 pending, 3 due, 0 in flight, 0 failing, 0 parked, 0 dead\n")

	r = run("queues", "-o", "json")
	require.Equal(t, command.ExitOK, r.code, r.err)
	var answers []struct {
		Database string
		Answer   json.RawMessage
	}
	require.NoError(t, json.Unmarshal([]byte(r.out), &answers), r.out)
	require.Len(t, answers, 3)
	require.NotEqual(t, answers[0].Database, answers[1].Database)
	require.Contains(t, string(answers[2].Answer), `"pending":3`)

	r = run("messages", "list", "-o", "jsonl")
	require.Equal(t, command.ExitOK, r.code, r.err)
	for line := range strings.Lines(r.out) {
		require.True(t, json.Valid([]byte(line)), line)
		require.Contains(t, line, `{"database":"file `)
	}
	require.Equal(t, 3, strings.Count(r.out, "\n"))
}

func TestSeveral_databases_of_which_one_is_away_or_unwell(t *testing.T) {
	t.Parallel()
	run, first, second := two(t)
	r := run("check", "--max-age", "1m")
	require.Equal(t, command.ExitFound, r.code, r.err)
	require.Equal(t, 2, strings.Count(r.out, "have been due"), r.out)

	require.NoError(t, second.database.DB.Close())
	require.NoError(t, os.Remove(second.database.DSN[strings.Index(second.database.DSN, "/"):strings.Index(second.database.DSN, "?")]))
	r = run("queues")
	require.Equal(t, command.ExitError, r.code, r.out)
	require.Contains(t, r.out, "there is no file")
	require.Regexp(t, "All together: 1 pending, .*, without 1 database\n", r.out)
	require.Contains(t, run("queues", "-o", "json").out, `"missing":1`)
	address := first.serve("--dsn", first.database.DSN, "--dsn", second.database.DSN)
	status, body := first.ask(http.MethodGet, address, "", "")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, body, "does not answer")
}

func TestSeveral_databases_are_refused_by_what_changes_one(t *testing.T) {
	t.Parallel()
	run, first, _ := two(t)
	for _, args := range [][]string{
		{"pause", "--outbox", "outbox"},
		{"dead", "delete", "--all", "--yes"},
		{"migrate", "up"},
		{"tail"},
		{"drain"},
		{"prove"},
		{"queues", "--watch"},
		{"messages", "show", "1"},
	} {
		r := run(args...)
		require.Equal(t, command.ExitUsage, r.code, args)
		require.Contains(t, r.err, "one", args)
	}
	require.Contains(t, first.ok("dead", "list"), "no such customer")
}

func TestSeveral_databases_of_a_configuration(t *testing.T) {
	t.Parallel()
	_, first, second := two(t)
	file := filepath.Join(t.TempDir(), "postbox.env")
	lines := "POSTBOX_DSN=" + first.database.DSN + "\nPOSTBOX_DSN='" + second.database.DSN + "'\nPOSTBOX_DIALECT=sqlite\n"
	require.NoError(t, os.WriteFile(file, []byte(lines), 0o600))
	r := execute(t.Context(), command.Options{}, nil, "queues", "--config", file)
	require.Equal(t, command.ExitOK, r.code, r.err)
	require.Contains(t, r.out, "All together: 3 pending")
}

func TestDashboard_of_several_databases(t *testing.T) {
	t.Parallel()
	_, first, second := two(t)
	address := first.serve("--dsn", first.database.DSN, "--dsn", second.database.DSN)
	status, body := first.ask(http.MethodGet, address, "", "")
	require.Equal(t, http.StatusOK, status)
	links := regexp.MustCompile(`<th scope="row"><a href="([^"]+)">`).FindAllStringSubmatch(body, -1)
	require.Len(t, links, 2, body)
	for n, pending := range []string{"1", "2"} {
		status, body := first.ask(http.MethodGet, address+links[n][1], "", "")
		require.Equal(t, http.StatusOK, status)
		require.Contains(t, body, "<strong>"+pending+"</strong> pending")
	}
}

func TestSeveral_databases_of_which_one_has_a_message(t *testing.T) {
	t.Parallel()
	run, _, _ := two(t)
	r := run("find", "b")
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.out, "message 1")
	require.Contains(t, r.out, "there is no trace of b")
	require.Equal(t, command.ExitFound, run("find", "nothing").code)
}
