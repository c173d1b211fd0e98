package command_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/cmd/postbox/command"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/tail/pgtail"
)

// logBench is a database whose log can be read.
func logBench(t *testing.T) *bench {
	t.Helper()
	b := newBench(t, testdb.PostgresLog(t))
	t.Cleanup(func() { // publications have one name space for all tests
		require.NoError(t, pgtail.Remove(context.Background(), b.database.Postbox(), b.publication()))
	})
	return b
}

// publication is one of this test's own.
func (b *bench) publication() (name string) {
	require.NoError(b.T, b.database.DB.QueryRowContext(context.Background(), "SELECT current_schema() || '_tail'").Scan(&name))
	return name
}

// logLine is a line of log check.
type logLine struct {
	Check, Status, Finding, Fix string
	Slot                        *struct {
		Name           string
		Exists, Active bool
		PID            int
	}
}

// logLines runs a command that lists the state of the log, which ends with a code.
func (b *bench) logLines(code int, args ...string) map[string]logLine {
	b.Helper()
	r := b.run(append(args, "-o", "jsonl")...)
	require.Equal(b, code, r.code, "%v: %s%s", args, r.out, r.err)
	found := map[string]logLine{}
	for line := range strings.Lines(r.out) {
		var l logLine
		require.NoError(b, json.Unmarshal([]byte(line), &l))
		found[l.Check] = l
	}
	return found
}

// reading runs a forwarder that reads the log, until stop is called.
func (b *bench) reading(config forwarder.Config) (stop func()) {
	b.Helper()
	f, err := forwarder.New(b.database.On(b.database.Open(b.T)), publisherFunc(func(string, ...*message.Message) error { return nil }), config, nil)
	require.NoError(b, err)
	ended := make(chan error, 1)
	go func() { ended <- f.Run(context.WithoutCancel(b.Context())) }()
	return func() {
		b.Helper()
		require.NoError(b, f.Close())
		require.NoError(b, <-ended)
	}
}

const logPatience = 2 * time.Minute // to make a slot, the server waits for the transactions of other tests

func TestLog_is_set_up_checked_and_removed(t *testing.T) {
	t.Parallel()
	b := logBench(t)
	named := []string{"--publication", b.publication()}
	with := func(args ...string) []string { return append(args, named...) }

	found := b.logLines(command.ExitFound, with("log", "check")...)
	require.Equal(t, "problem", found["publication"].Status)
	require.Contains(t, found["publication"].Fix, `"postbox log setup"`)
	for range 2 {
		found = b.logLines(command.ExitOK, with("log", "setup", "--log-dsn", b.database.DSN)...)
		require.Equal(t, "ok", found["publication"].Status)
		require.Equal(t, "ok", found["role"].Status)
		require.Equal(t, "notice", found["reader"].Status)
	}
	require.Contains(t, b.ok(with("log", "check")...), "role         notice  not looked at")

	tail, err := pgtail.New(pgtail.Config{DSN: b.database.DSN, Publication: b.publication()})
	require.NoError(t, err)
	stop := b.reading(forwarder.Config{Tail: tail})
	require.Eventually(t, func() bool {
		found = b.logLines(command.ExitOK, with("log", "check")...)
		return found["reader"].Status == "ok"
	}, logPatience, testdb.PollPause)
	require.Contains(t, found["reader"].Finding, fmt.Sprintf("process %d of role postgres", found["slot"].Slot.PID))

	r := b.run(with("log", "remove", "--yes")...)
	require.Equal(t, command.ExitError, r.code)
	require.Contains(t, r.err, "reads the log: stop the forwarders")
	require.Contains(t, b.run(with("log", "remove", "--force")...).err, "add --yes")
	require.Contains(t, b.ok(with("log", "remove", "--force", "--yes")...), "does not include the tables any more")
	stop()
	require.Contains(t, b.ok(with("log", "remove", "--yes")...), "does not include the tables any more")
	audit := b.ok("audit")
	require.Equal(t, 1, strings.Count(audit, "log setup"), audit)
	require.Equal(t, 1, strings.Count(audit, "log remove"), audit)
}

// Each right that is missing is named with the statement that gives it.
func TestLog_says_which_rights_are_missing(t *testing.T) {
	t.Parallel()
	b := logBench(t)
	b.ok("log", "setup", "--publication", b.publication())
	name, as := b.role()
	found := b.logLines(command.ExitFound, "log", "check", "--publication", b.publication(), "--log-dsn", as.database.DSN)
	require.Equal(t, "problem", found["role"].Status)
	require.Contains(t, found["role"].Fix, `ALTER ROLE "`+name+`" LOGIN REPLICATION`)

	r := as.run("log", "setup", "--publication", b.publication()+"_2")
	require.Equal(t, command.ExitFound, r.code)
	require.Contains(t, r.err, `GRANT "postgres" TO "`+name+`"`)
	require.Contains(t, r.err, `GRANT CREATE ON DATABASE "postgres" TO "`+name+`"`)
}

func TestLog_is_for_PostgreSQL_alone(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	for _, args := range []string{"log setup", "log check", "log remove --force --yes"} {
		r := b.run(strings.Fields(args)...)
		require.Equal(t, command.ExitUsage, r.code, args)
		require.Contains(t, r.err, "the log of SQLite cannot be read: these commands are for PostgreSQL", args)
	}
}
