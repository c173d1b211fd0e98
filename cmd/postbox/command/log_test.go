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
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/tail/pgtail"
)

// logBench is a database whose log can be read.
func logBench(t *testing.T) *bench {
	t.Helper()
	b := newBench(t, testdb.PostgresLog(t))
	t.Cleanup(func() { // slots and publications have one name space for all tests
		db := b.database.Postbox()
		require.NoError(t, pgtail.Remove(context.Background(), db, b.publication()))
		require.NoError(t, pgtail.DiscardOutbox(context.Background(), db, pgtail.OutboxConfig{DSN: b.database.DSN}))
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
		Retained       int64 `json:"retained_bytes"`
		Failover       bool
		WALStatus      string `json:"wal_status"`
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

func TestLog_of_rows_is_set_up_checked_and_removed(t *testing.T) {
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

func TestLog_without_rows_is_set_up_checked_and_removed(t *testing.T) {
	t.Parallel()
	b := logBench(t)
	skipBefore14(b)
	found := b.logLines(command.ExitFound, "log", "check", "--without-rows")
	require.Contains(t, found["slot"].Fix, `"postbox log setup --without-rows"`)
	for range 2 {
		found = b.logLines(command.ExitOK, "log", "setup", "--without-rows", "--actor", "ada")
		require.True(t, found["slot"].Slot.Exists)
		require.Equal(t, "reserved", found["slot"].Slot.WALStatus)
		require.Equal(t, "notice", found["reader"].Status)
		require.Equal(t, "the log is set up, and no process reads it yet", found["reader"].Finding)
	}
	found = b.logLines(command.ExitFound, "log", "check", "--without-rows")
	require.Equal(t, "problem", found["reader"].Status)
	require.Contains(t, found["reader"].Finding, "no process reads messages from the log")
	require.Contains(t, b.findings()["log"][0], "no process reads messages from the log", "doctor says the same")

	outbox, err := forwarder.NewPublisher(b.database.Postbox(), forwarder.PublisherConfig{Log: true, AllowAutocommit: true}, nil)
	require.NoError(t, err)
	require.NoError(t, outbox.Publish("orders", message.NewMessage("waits", nil)))
	for _, args := range []string{"drain --timeout 0s", "check"} { // the message has no row
		r := b.run(strings.Fields(args)...)
		require.Equal(t, command.ExitFound, r.code, args)
		require.Contains(t, r.err, "messages may wait in the log: no process reads messages from the log", args)
	}
	r := b.run("log", "remove", "--without-rows", "--yes")
	require.Equal(t, command.ExitError, r.code)
	require.Contains(t, r.err, "the log has messages that were not stored")
	require.Contains(t, r.err, "--force removes the slot now")

	reader, err := pgtail.NewOutbox(pgtail.OutboxConfig{DSN: b.database.DSN})
	require.NoError(t, err)
	stop := b.reading(forwarder.Config{Tail: reader})
	require.Eventually(t, func() bool { return b.run("log", "check", "--without-rows").code == command.ExitOK }, logPatience, testdb.PollPause)
	require.Eventually(t, func() bool { // the message may have a row until it is published
		return strings.Contains(b.run("drain", "--timeout", "0s").err, "--timeout must be longer")
	}, logPatience, testdb.PollPause)
	require.Contains(t, b.ok("drain", "--outbox", "outbox"), "yes")
	require.Zero(t, b.database.Count(t, "SELECT COUNT(*) FROM postbox_messages"))
	b.ok("check")
	require.Contains(t, b.run("log", "remove", "--without-rows", "--yes").err, "reads the log: stop the publishers")
	require.Contains(t, b.run("log", "remove", "--without-rows", "--force").err, "of log that was not confirmed are lost")
	require.Contains(t, b.ok("log", "remove", "--without-rows", "--force", "--yes"), "are removed")
	stop()
	require.Zero(t, b.database.Count(t, "SELECT COUNT(*) FROM pg_replication_slots WHERE slot_name = ?", found["slot"].Slot.Name))
	require.Contains(t, b.ok("log", "remove", "--without-rows", "--yes"), "so there was nothing to remove")
	require.Eventually(t, func() bool { // a publisher looks for the slot once a second
		err := outbox.Publish("orders", message.NewMessage("refused", nil))
		return err != nil && strings.Contains(err.Error(), "postbox log setup --without-rows")
	}, logPatience, testdb.PollPause)
	audit := b.ok("audit", "--action", "log setup")
	require.Equal(t, 1, strings.Count(audit, "ada"), audit)
	require.Equal(t, 1, strings.Count(b.ok("audit"), "log remove"))
}

// A set-up was killed while the server waited for open transactions. The server makes the slot all the same, and publishers can write then.
func TestLog_shows_a_set_up_that_was_cut_off(t *testing.T) {
	t.Parallel()
	b := logBench(t)
	skipBefore14(b)
	found := b.logLines(command.ExitFound, "log", "check", "--without-rows")
	require.Equal(t, "problem", found["publication"].Status, "there is none")
	require.Contains(t, found["publication"].Finding, "there is no publication")
	slot := found["slot"].Slot.Name
	making := func() (end func() error, ended chan error) {
		open, err := b.database.DB.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = open.ExecContext(t.Context(), "SELECT pg_current_xact_id()")
		require.NoError(t, err)
		b.database.Exec(t, "CREATE PUBLICATION "+slot)
		var written string
		require.NoError(t, b.database.DB.QueryRowContext(t.Context(), "SELECT xmin::text FROM pg_publication WHERE pubname = $1", slot).Scan(&written))
		statements, err := spool.StatementsIn(b.database.Postbox())
		require.NoError(t, err)
		b.database.Exec(t, statements.MarkPublication(slot, written)) // as the set-up does before it makes the slot
		conn, err := b.database.DB.Conn(t.Context())                  // the pool would try again on another connection
		require.NoError(t, err)
		ended = make(chan error, 1)
		go func() {
			_, err := conn.ExecContext(context.WithoutCancel(t.Context()), "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", slot)
			_ = conn.Close()
			ended <- err
		}()
		require.Eventually(t, func() bool {
			found = b.logLines(command.ExitFound, "log", "check", "--without-rows")
			return found["slot"].Slot.Exists && found["slot"].Slot.PID != 0
		}, logPatience, testdb.PollPause)
		return open.Rollback, ended
	}

	end, ended := making()
	require.Equal(t, "ok", found["publication"].Status)
	require.Contains(t, found["slot"].Finding, "is still being made")
	require.Contains(t, b.run("log", "setup", "--without-rows").err, "is still being made")
	require.Contains(t, b.run("log", "remove", "--without-rows", "--yes").err, "is still being made")
	require.Contains(t, b.findings()["log"][0], "is still being made")
	require.Contains(t, b.ok("log", "remove", "--without-rows", "--force", "--yes"), "are removed")
	require.Error(t, <-ended, "its process was ended")
	require.NoError(t, end())
	require.False(t, b.logLines(command.ExitFound, "log", "check", "--without-rows")["slot"].Slot.Exists)

	end, ended = making()
	require.NoError(t, end())
	require.NoError(t, <-ended)
	require.Contains(t, b.findings()["log"][0], "the set-up was cut off")
	found = b.logLines(command.ExitFound, "log", "check", "--without-rows")
	require.Contains(t, found["slot"].Finding, "the set-up was cut off")
	require.Contains(t, found["slot"].Fix, `"postbox log setup --without-rows"`)
	outbox, err := forwarder.NewPublisher(b.database.Postbox(), forwarder.PublisherConfig{Log: true, AllowAutocommit: true}, nil)
	require.NoError(t, err)
	require.NoError(t, outbox.Publish("orders", message.NewMessage("waits", nil)))
	for _, args := range []string{"drain --timeout 0s", "check"} {
		r := b.run(strings.Fields(args)...)
		require.Equal(t, command.ExitFound, r.code, args)
		require.Contains(t, r.err, "messages may wait in the log: the set-up was cut off", args)
	}
	require.Contains(t, b.run("log", "remove", "--without-rows", "--yes").err, "the log has messages that were not stored")
	b.logLines(command.ExitOK, "log", "setup", "--without-rows")
	require.Contains(t, b.run("log", "remove", "--without-rows", "--yes").err, "the log has messages that were not stored", "what was written meanwhile is kept")
}

// Another program has made a slot of this name.
func TestLog_names_a_slot_of_another_program(t *testing.T) {
	t.Parallel()
	b := logBench(t)
	skipBefore14(b)
	slot := b.logLines(command.ExitFound, "log", "check", "--without-rows")["slot"].Slot.Name
	b.database.Exec(t, "SELECT pg_create_physical_replication_slot(?)", slot)
	for _, args := range [][]string{{"log", "check", "--without-rows"}, {"log", "setup", "--without-rows"}} {
		found := b.logLines(command.ExitFound, args...)
		require.Contains(t, found["slot"].Finding, "the slot "+slot+" was made by another program, and Postbox makes its own")
		require.Contains(t, found["slot"].Fix, "pg_drop_replication_slot")
	}
}

func TestLog_accepts_a_loss_after_it_was_found(t *testing.T) {
	t.Parallel()
	b := logBench(t)
	skipBefore14(b)
	require.Contains(t, b.run("log", "accept-loss", "--yes").err, "the log is not set up for messages")
	found := b.logLines(command.ExitOK, "log", "setup", "--without-rows")
	b.database.Exec(t, "SELECT pg_drop_replication_slot(?)", found["slot"].Slot.Name)
	found = b.logLines(command.ExitFound, "log", "check", "--without-rows")
	require.Contains(t, found["slot"].Finding, "is gone: messages that were in the log alone may be lost")
	require.Contains(t, found["slot"].Fix, `run "postbox log accept-loss"`)
	require.Contains(t, found["slot"].Fix, "Publish these again afterwards")
	r := b.run("log", "setup", "--without-rows")
	require.Equal(t, command.ExitFound, r.code)
	require.Contains(t, r.err, "is gone")
	r = b.run("log", "remove", "--without-rows", "--yes")
	require.Equal(t, command.ExitError, r.code)
	require.Contains(t, r.err, "the removal would hide a loss, so accept it first")
	require.Contains(t, r.err, `run "postbox log accept-loss"`)
	require.Contains(t, b.run("log", "setup", "--without-rows").err, "is gone", "the loss is still shown")
	require.Contains(t, b.run("log", "accept-loss").err, "add --yes")
	out := b.ok("log", "accept-loss", "--yes")
	require.Regexp(t, `^Given up: (messages from \d{4}-\S+Z to \d{4}-\S+Z that were committed to the log before [0-9A-F]+/[0-9A-F]+, and not stored)\.\n`+
		`Forwarders can read the log again, from [0-9A-F]+/[0-9A-F]+ on\.`, out)
	require.Contains(t, out, "Now find out which messages of that time are missing, and publish them again with their ids")
	found = b.logLines(command.ExitFound, "log", "check", "--without-rows")
	require.Equal(t, "ok", found["slot"].Status)
	require.Contains(t, b.ok("audit"), "log accept-loss")
	note, _, _ := strings.Cut(strings.TrimPrefix(out, "Given up: "), ".\n")
	require.Contains(t, b.ok("audit", "--output", "json"), note, "the audit log keeps what was printed")
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

// The role of --log-dsn may read the log, and that of --dsn does not own the tables.
func TestLog_without_rows_says_which_rights_are_missing(t *testing.T) {
	t.Parallel()
	b := logBench(t)
	skipBefore14(b)
	name, as := b.role()
	with := func(args ...string) string {
		r := as.run(append(args, "--log-dsn", b.database.DSN, "--yes")...)
		require.NotEqual(t, command.ExitOK, r.code, args)
		return r.err
	}
	for _, args := range [][]string{{"log", "setup", "--without-rows"}, {"log", "remove", "--without-rows", "--force"}, {"log", "accept-loss"}} {
		require.Contains(t, with(args...), "GRANT SELECT ON postbox_log_position TO …", args)
	}
	b.database.Exec(t, "GRANT SELECT ON postbox_log_position TO "+name)
	owner := `GRANT "postgres" TO "` + name + `"`
	require.Contains(t, with("log", "setup", "--without-rows"), owner)
	b.logLines(command.ExitOK, "log", "setup", "--without-rows")
	for _, args := range [][]string{{"log", "remove", "--without-rows"}, {"log", "remove", "--without-rows", "--force"}, {"log", "accept-loss"}} {
		require.Contains(t, with(args...), owner, args)
	}
	require.True(t, b.logLines(command.ExitFound, "log", "check", "--without-rows")["slot"].Slot.Exists, "nothing was removed")
	require.Contains(t, as.run("pause", "--outbox", "outbox").err, `"postbox doctor" names the rights that are missing`)
}

func TestLog_is_for_PostgreSQL_alone(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	for _, args := range []string{"log setup", "log check --without-rows", "log remove --force --yes", "log accept-loss --yes"} {
		r := b.run(strings.Fields(args)...)
		require.Equal(t, command.ExitUsage, r.code, args)
		require.Contains(t, r.err, "the log of SQLite cannot be read: these commands are for PostgreSQL", args)
	}
}

// The publication of the slot was dropped, and then a table was changed. Then messages may be lost, which is said of the slot. The publication does not look fine.
func TestLog_shows_a_publication_that_was_dropped(t *testing.T) {
	t.Parallel()
	b := logBench(t)
	skipBefore14(b)
	slot := b.logLines(command.ExitOK, "log", "setup", "--without-rows")["slot"].Slot.Name
	for _, statement := range []string{"DROP PUBLICATION " + slot, "CREATE TABLE business AS SELECT 1 AS n", "INSERT INTO business VALUES (2)", "DROP TABLE business"} {
		b.database.Exec(t, statement)
	}
	found := b.logLines(command.ExitFound, "log", "check", "--without-rows", "--log-dsn", b.database.DSN)["publication"]
	require.NotEqual(t, "ok", found.Status)
	require.Contains(t, found.Finding, slot)
	require.NotEmpty(t, found.Fix)
}

// skipBefore14 skips a test of messages in the log on a server that cannot send them.
func skipBefore14(b *bench) {
	b.Helper()
	if b.database.Count(b.T, "SELECT current_setting('server_version_num')::int") < 140_000 {
		b.Skip("PostgreSQL 14 or later is missing: this version does not send messages of its log")
	}
}
