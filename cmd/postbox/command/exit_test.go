package command_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/cmd/postbox/command"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

func TestExecute_exit_codes(t *testing.T) {
	t.Parallel()
	b := shop(t)
	for _, c := range []struct {
		args, says string
		code       int
	}{
		{"queues", "", command.ExitOK},
		{"--version", "", command.ExitOK},
		{"dead", "", command.ExitOK}, // prints its help
		{"gone", `unknown command "gone"`, command.ExitUsage},
		{"dead gone", `unknown command "gone"`, command.ExitUsage},
		{"queues --gone", "unknown flag", command.ExitUsage},
		{"queues too much", "unknown command", command.ExitUsage},
		{"queues -o xml", "not one of table, json, jsonl", command.ExitUsage},
		{"queues --watch --interval 1ms", "at least 1s", command.ExitUsage},
		{"messages list --outbox a --queue b", "none of the others can be", command.ExitUsage},
		{"messages list --status done", "not one of ready", command.ExitUsage},
		{"messages list --status done", `"postbox messages list --done" lists messages that are done`, command.ExitUsage},
		{"messages list --done-after 1h", "are for --done", command.ExitUsage},
		{"messages list --done --status ready", "for pending messages", command.ExitUsage},
		{"messages list --limit -1", "negative", command.ExitUsage},
		{"messages list --after x", "is not a cursor", command.ExitUsage},
		{"messages bury --key k --created-after 2026-01-02T00:00:00Z --created-before 2026-01-01T00:00:00Z --reason x --yes", "no span of time", command.ExitUsage},
		{"replay --all --after x --yes", "is not a cursor", command.ExitUsage},
		{"dead requeue --queue gone --yes", `queue "gone": not found`, command.ExitError},
		{"dead resolve --queue gone --reason x --yes", "not found", command.ExitError},
		{"dead delete --outbox gone --yes", "not found", command.ExitError},
		{"messages bury --queue gone --all --reason x --yes", "not found", command.ExitError},
		{"messages run-now --queue gone --all --yes", "not found", command.ExitError},
		{"replay --queue gone --all --yes", "not found", command.ExitError},
		{"dead groups --queue gone", "not found", command.ExitError},
		{"messages show x", "is no id", command.ExitUsage},
		{"messages show 99", "not found", command.ExitError},
		{"messages run-now 5 99", "1 message is not made due", command.ExitError},
		{"messages reschedule 1", "--at is missing", command.ExitUsage},
		{"messages reschedule 1 --at soon", "is no time", command.ExitUsage},
		{"messages reschedule 1 --at 1h", "1 message is not rescheduled", command.ExitError}, // it is ready
		{"messages bury 1", "--reason is missing", command.ExitUsage},
		{"messages list --queue gone", "not found", command.ExitError},
		{"dead list --resolved maybe", "not one of no", command.ExitUsage},
		{"dead list --died-after -1h", "is no time", command.ExitUsage},
		{"dead delete --yes", "no dead letters are chosen", command.ExitUsage},
		{"dead delete 1 --all --yes", "not by both", command.ExitUsage},
		{"dead resolve 1 --yes", "--reason is missing", command.ExitUsage},
		{"dead delete 99 --yes", "1 dead letter is not deleted", command.ExitError},
		{"dead delete --died-before 1970-01-01T00:00:00Z --yes", "not after the beginning of 1970", command.ExitUsage},
		{"dead requeue --died-before 0001-01-01T00:00:00Z --yes", "not after the beginning of 1970", command.ExitUsage},
		{"dead resolve --died-before 1969-01-01T00:00:00Z --reason x --yes", "not after the beginning of 1970", command.ExitUsage},
		{"messages reschedule 5 --at 9999-12-31T23:59:59-01:00", "before the year 10000", command.ExitUsage},
		{"dead delete 1 --limit 1 --yes", "--limit is for filters", command.ExitUsage},
		{"drain --timeout NaNd", "write a duration", command.ExitUsage},
		{"drain --timeout 876001h", "up to 36500d", command.ExitUsage},
		{"set --attempts many", `"many" is no whole number from 1 to 2147483647: write one, or "unlimited" or "default"`, command.ExitUsage},
		{"set --attempts -1", "--attempts", command.ExitUsage},
		{"set --max-concurrent 1.5", `"1.5" is no whole number from 1 to 2147483647: write one, or "none" or "default"`, command.ExitUsage},
		{"set --max-concurrent 0", `or "none"`, command.ExitUsage},
		{"set --max-concurrent 99999999999999999999", `is no whole number from 1 to 2147483647: write one, or "none" or "default"`, command.ExitUsage},
		{"set --page-size 10001", `"10001" is no whole number from 1 to 10000: write one, or "default"`, command.ExitUsage},
		{"set --concurrency 10001", `"10001" is no whole number from 1 to 10000: write one, or "default"`, command.ExitUsage},
		{"set --per-second 1e9", `"1e9" is no number from 0.00001, which is one message in 28 hours, to 1000000: write one, or "none" or "default"`, command.ExitUsage},
		{"set --per-second 1e-9", "one message in 28 hours", command.ExitUsage},
		{"set --per-second NaN", `or "none"`, command.ExitUsage},
		{"set --per-second 0", `or "none"`, command.ExitUsage},
		{"set --history 500ms --yes", `"500ms" is no duration from 1s to 36500d: write one such as 90s, 15m, 12h or 30d, or "off" or "default"`, command.ExitUsage},
		{"set --history -1h --yes", `or "off"`, command.ExitUsage},
		{"set --retention 0s --yes", `or "forever"`, command.ExitUsage},
		{"set --poll-max 2h", `"2h" is no duration from 1ms to 1h`, command.ExitUsage},
		{"set --queue gone", "not found", command.ExitError},
		{"check --max-age 1m", "have been due", command.ExitFound},
		{"check --max-age 36500d", "", command.ExitOK},
		{"check --outbox gone", "not found", command.ExitError},
		{"drain --timeout 0s", "not empty", command.ExitFound},
		{"doctor", "problems found", command.ExitFound},
		{"queues --prefix 1x", "table prefix", command.ExitUsage},
		{"queues --schema shop", "SQLite has no schemas", command.ExitUsage},
		{"queues --dialect oracle", "is not one of postgresql", command.ExitUsage},
	} {
		r := b.run(strings.Fields(c.args)...)
		require.Equal(t, c.code, r.code, "%s: %s", c.args, r.err)
		require.Contains(t, r.err, c.says, c.args)
		if c.code == command.ExitUsage {
			require.Contains(t, r.err, "--help", c.args)
		}
	}
}

func TestExecute_a_context_that_ends_is_a_stop(t *testing.T) {
	t.Parallel()
	b := shop(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, args := range [][]string{{"queues"}, {"drain"}, {"doctor"}} {
		r := execute(ctx, command.Options{}, b.environment(), args...)
		require.Equal(t, command.ExitStopped, r.code, r.err)
	}
}

func TestExecute_a_database_without_tables_says_how_to_make_them(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := &bench{T: t, database: database}
		require.NoError(t, database.DB.PingContext(t.Context())) // which makes the file
		for _, args := range [][]string{{"queues"}, {"dead", "list"}, {"messages", "list"}, {"pause"}, {"check"}, {"set"}} {
			r := b.run(args...)
			require.Equal(t, command.ExitError, r.code, args)
			require.Contains(t, r.err, `run "postbox migrate up"`, args)
		}
		r := b.run("migrate", "status")
		require.Equal(t, command.ExitFound, r.code, r.err)
		require.Contains(t, r.err, `run "postbox migrate up"`)
		r = b.run("doctor", "-o", "jsonl")
		require.Equal(t, command.ExitFound, r.code, r.err)
		require.Contains(t, r.out, `"fix":"postbox migrate up"`)
		require.NotContains(t, r.out, `"unknown"`)

		require.Contains(t, b.ok("migrate", "up"), "from version 0 to version 1.")
		require.Contains(t, b.ok("migrate", "up"), "0 migrations run")
		b.ok("migrate", "status")
		b.ok("queues")
		b.ok("doctor")
	})
}

func TestExecute_a_file_that_is_not_there_is_made_by_migrate_alone(t *testing.T) {
	t.Parallel()
	env := map[string]string{"POSTBOX_DSN": t.TempDir() + "/100% # shop.db"}
	for _, args := range [][]string{{"queues"}, {"doctor"}, {"migrate", "status"}} {
		r := execute(t.Context(), command.Options{}, env, args...)
		require.Equal(t, command.ExitError, r.code)
		require.Contains(t, r.err, "there is no file")
		require.NoFileExists(t, env["POSTBOX_DSN"])
	}
	require.Zero(t, execute(t.Context(), command.Options{}, env, "migrate", "up").code)
	r := execute(t.Context(), command.Options{}, env, "queues")
	require.Zero(t, r.code, r.err)
}

// The parser of flags would name its functions.
func TestExecute_a_flag_that_takes_a_number_says_so(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	for flag, want := range map[string]string{
		"dead list --after x":                     `postbox: --after: "x" is not a whole number`,
		"dead list --limit 1.5":                   `postbox: --limit: "1.5" is not a whole number`,
		"dead list --like 9999999999999999999999": `postbox: --like: "9999999999999999999999" is not a number of that size`,
		"queues --watch=maybe":                    `postbox: --watch: "maybe" is not true or false`,
	} {
		r := b.run(strings.Fields(flag)...)
		require.Equal(t, command.ExitUsage, r.code, flag)
		require.Contains(t, r.err, want)
		require.NotContains(t, r.err, "strconv")
	}
}

func TestAudit_goes_on_with_the_cursor_that_it_prints(t *testing.T) {
	t.Parallel()
	b := shop(t)
	_, cursor, found := strings.Cut(strings.TrimSpace(b.run("audit", "--limit", "1").err), "--before ")
	require.True(t, found)
	require.NotEqual(t, b.ok("audit", "--limit", "1"), b.ok("audit", "--limit", "1", "--before", cursor))
	require.Equal(t, command.ExitUsage, b.run("dead", "list", "--after", cursor).code)
	r := b.run("audit", "--before", "1")
	require.Equal(t, command.ExitUsage, r.code, "the id of a dead letter")
	require.Contains(t, r.err, "is not a cursor of this list")
}
