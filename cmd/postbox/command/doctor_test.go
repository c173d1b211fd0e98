package command_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/cmd/postbox/command"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// findings returns what doctor says about a check that is not all right.
func (b *bench) findings(args ...string) map[string][]string {
	b.Helper()
	found := map[string][]string{}
	for line := range strings.Lines(b.run(append([]string{"doctor", "-o", "jsonl"}, args...)...).out) {
		var f struct{ Check, Status, Finding, Fix string }
		require.NoError(b, json.Unmarshal([]byte(line), &f))
		if f.Status == "ok" {
			continue
		}
		require.NotEmpty(b, f.Fix, f.Finding)
		found[f.Check] = append(found[f.Check], f.Status+": "+f.Finding+" → "+f.Fix)
	}
	return found
}

// only requires that doctor has one finding, with these texts.
func (b *bench) only(check string, found map[string][]string, says ...string) {
	b.Helper()
	require.Len(b, found, 1, found)
	require.Len(b, found[check], 1, found)
	for _, text := range says {
		require.Contains(b, found[check][0], text)
	}
}

func TestDoctor_finds_migrations_that_are_missing_or_unknown(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	require.NoError(t, database.DB.PingContext(t.Context())) // which makes the file
	b := &bench{T: t, database: database}
	require.Contains(t, b.findings()["schema"][0], "problem: 1 migration is missing → postbox migrate up")
	status := b.run("migrate", "status")
	require.Equal(t, command.ExitFound, status.code)
	require.Contains(t, status.err, `1 migration is missing: run "postbox migrate up"`)
	require.Contains(t, b.ok("migrate", "up"), "1 migration run, from version 0 to version 1.")
	require.Empty(t, b.findings())

	database.Exec(t, "INSERT INTO postbox_version (version_id, is_applied) VALUES (99, TRUE)")
	b.only("schema", b.findings(), "version 99", "does not know 1 migration", "newer version of postbox")
	status = b.run("migrate", "status")
	require.Equal(t, command.ExitFound, status.code)
	require.Contains(t, status.err, "newer than this program")
	require.Contains(t, status.out, "unknown")

	// docs/upgrade.md says what to look at after the way back to this program.
	require.Regexp(t, `(?s)^CHECK[^\n]+\nserver[^\n]+\nschema[^\n]+\nclock[^\n]+\n$`, b.run("doctor").out)
	b.ok("queues")
	b.ok("check", "--max-age", "1m")
}

// With another migration tool the tables seemed to have no version, and the advice was to make them
// a second time.
func TestMigrateSQL_notes_what_has_run(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := &bench{T: t, database: database}
		require.NoError(t, database.DB.PingContext(t.Context())) // which makes the file
		database.RunScript(t, b.ok("migrate", "sql"))
		require.NotContains(t, b.ok("migrate", "status"), "missing")
		require.Empty(t, b.findings())
		require.Contains(t, b.ok("migrate", "up"), "0 migrations run")
	})
}

// Tables of an earlier version lack columns, and a command says what to do on each database.
func TestCommands_say_that_tables_are_of_an_earlier_version(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		require.NoError(t, postbox.Migrate(t.Context(), database.Postbox()))
		database.Exec(t, "ALTER TABLE postbox_spools DROP COLUMN settings")
		b := &bench{T: t, database: database}
		for _, args := range []string{"queues", "lanes", "messages list", "set"} {
			r := b.run(strings.Fields(args)...)
			require.Equal(t, command.ExitError, r.code, args)
			require.Contains(t, r.err, `are missing, or are older than this program: run "postbox migrate up"`, args)
		}
	})
}

func TestDoctor_finds_another_deployment(t *testing.T) {
	t.Parallel()
	b := &bench{T: t, database: testdb.SQLite(t)}
	require.NoError(t, b.database.DB.PingContext(t.Context()))
	b.ok("migrate", "up", "--deployment", "production")
	require.Empty(t, b.findings("--deployment", "production"))
	b.only("deployment", b.findings("--deployment", "staging"), "problem: ", `are those of "production"`, "--deployment")
	b.only("deployment", b.findings(), "notice: ", `are those of "production"`, "--deployment")
}

func TestDoctor_finds_sessions_that_cannot_be_used(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	b.database.DSN = strings.Replace(b.database.DSN, "_txlock=immediate", "_txlock=deferred", 1)
	b.only("server", b.findings(), "problem: ", "_txlock=immediate")
}

func TestDoctor_finds_a_server_that_takes_no_writes(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	b.database.DSN += "&_pragma=query_only(1)"
	b.only("writable", b.findings(), "problem: the server takes no writes", "connect to the primary server")
}

func TestDoctor_finds_messages_that_no_process_handles(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	b.append(b.outbox, draft("m-1", "orders", "k"))
	b.append(b.queue, draft("m-2", "fraud", "k"))
	found := b.findings()
	require.Len(t, found, 1)
	require.Len(t, found["processes"], 2)
	require.Contains(t, found["processes"][0], `outbox "outbox" has 1 message and no process that handles them. → Run a forwarder`)
	require.Contains(t, found["processes"][1], `queue "fraud" has 1 message and no process that handles them. → Run a queue.Subscriber`)

	b.join(b.outboxID())
	found = b.findings()
	require.Len(t, found["processes"], 1)
	require.Contains(t, found["processes"][0], `queue "fraud"`)
	require.Contains(t, found["late"][0], `problem: outbox "outbox" is late: its first message has been due for `, "the process does nothing")
	b.database.Exec(t, "UPDATE postbox_messages SET spool = 99 WHERE message_id = ?", []byte("m-2"))
	found = b.findings()
	require.Len(t, found["processes"], 1)
	require.Contains(t, found["processes"][0], "with the id 99, which does not exist")
	require.Contains(t, found["processes"][0], "UPDATE postbox_messages SET spool = ")
}

// join enters a live process that drains a spool, and holds no lane.
func (b *bench) join(id int64) {
	b.Helper()
	b.exec(b.statements.Join(dialect.JoinParams{Member: dialect.Member{Spool: id, Holder: "host 1"}, InFlight: "{}", TTL: 3_600_000_000}))
}

func TestDoctor_finds_lanes_without_a_holder(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	id := b.outboxID()
	b.exec(b.statements.FillLanes(id))
	require.Empty(t, b.findings(), "without a process no lane needs a holder")
	b.join(id)
	b.only("lanes", b.findings(), `problem: 32 lanes without a holder in outbox "outbox"`)
}

// Each process says in its heartbeats what it does with messages.
func TestDoctor_finds_services_that_share_an_outbox(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	id := b.outboxID()
	b.exec(b.statements.FillLanes(id))
	for _, of := range []string{"shop", "bank"} {
		beat := spool.Heartbeat{InFlight: map[string]int{}, Work: "kafka of the " + of}
		b.exec(b.statements.Join(dialect.JoinParams{Member: dialect.Member{Spool: id, Holder: of}, InFlight: beat.Encode(), TTL: time.Hour.Microseconds()}))
	}
	b.database.Exec(t, "UPDATE postbox_lanes SET holder = 'shop'")
	b.only("services", b.findings(), `problem: outbox "outbox" is shared by processes that do different things with its messages: kafka of the bank; kafka of the shop`)
}

// A message that has failed holds back all later messages of its key. No call hangs then, and no
// operator has paused anything.
func TestDoctor_finds_stuck_keys_and_dead_letters(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	b.append(b.outbox, draft("m-1", "orders", "customer"), draft("m-2", "orders", "customer"), draft("m-3", "orders", "other"))
	b.database.Exec(t, "UPDATE postbox_messages SET state = 2, attempts = 1, available_at = ? WHERE message_id = ?", time.Now().Add(time.Hour).UnixMicro(), []byte("m-1"))
	b.database.Exec(t, "UPDATE postbox_messages SET created_at = ?", time.Now().UnixMicro())
	found := b.findings()
	require.Len(t, found["keys"], 1)
	require.Contains(t, found["keys"][0], `notice: outbox "outbox" has 1 stuck key, the first for `)
	require.Empty(t, found["letters"])

	b.database.Exec(t, "UPDATE postbox_messages SET created_at = created_at - 3600000000")
	require.NoError(t, errorOf(b.admin().Bury(t.Context(), admin.Filter{Target: admin.Outbox("outbox"), ID: 3}, "enough")))
	found = b.findings()
	require.Contains(t, found["keys"][0], `notice: outbox "outbox" has 1 stuck key, the first for 1h0m`)
	require.Contains(t, found["letters"][0], `notice: outbox "outbox" has 1 dead letter`)
	require.Contains(t, found["letters"][0], "postbox dead groups --outbox outbox")
}

// The circuit of a topic is in the memory of a process, which says so in its heartbeats.
func TestDoctor_finds_a_broker_that_is_away(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	b.append(b.outbox, draft("m-1", "orders", "k"))
	away := func(string, ...*message.Message) error { return &net.OpError{Op: "dial", Err: errors.New("refused")} }
	f, err := forwarder.New(b.database.Postbox(), publisherFunc(away), forwarder.Config{Tuning: postbox.Tuning{Lease: time.Second}}, nil)
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- f.Run(context.WithoutCancel(t.Context())) }()
	var found map[string][]string
	require.Eventually(t, func() bool { found = b.findings(); return len(found["outages"]) == 1 }, time.Minute, 10*time.Millisecond)
	require.Contains(t, found["outages"][0], `problem: outbox "outbox" cannot reach the broker for topic orders since `)
	require.Contains(t, found["outages"][0], "1 message waits: none is lost.")
	require.Contains(t, found["outages"][0], "Bring back what is away")
	require.Contains(t, b.ok("queues"), "1 outage")
	require.Contains(t, b.ok("queues", "-o", "json"), `"outages":[{"topic":"orders","since":"20`)
	require.NoError(t, f.Close())
	require.NoError(t, <-ended)
	require.Empty(t, b.findings()["outages"])
}

type publisherFunc func(topic string, messages ...*message.Message) error

// Publish calls the function.
func (f publisherFunc) Publish(topic string, messages ...*message.Message) error {
	return f(topic, messages...)
}

// Close does nothing.
func (publisherFunc) Close() error { return nil }

func TestDoctor_notices_what_operators_have_stopped(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	b.append(b.queue, draft("m-1", "fraud", "k"))
	b.database.Exec(t, "UPDATE postbox_messages SET state = 2, available_at = ?", int64(dialect.ParkedFrom))
	b.ok("pause", "--queue", "fraud")
	b.ok("keys", "pause", "k", "--queue", "fraud")
	found := b.findings()
	require.Len(t, found, 4)
	require.Len(t, found["keys"], 1)
	require.Contains(t, found["paused"][0], "with 1 message pending. → postbox resume --queue fraud")
	require.Contains(t, found["pauses"][0], "postbox keys list --queue fraud")
	require.Contains(t, found["parked"][0], `queue "fraud" has 1 message that used up all attempts`)
	require.Equal(t, command.ExitOK, b.run("doctor").code, "notices are no problems")

	b.ok("resume", "--queue", "fraud")
	b.ok("keys", "resume", "k", "--queue", "fraud")
	parked, _, err := b.admin().Messages(t.Context(), admin.Filter{Target: admin.Queue("fraud"), Status: admin.Parked})
	require.NoError(t, err)
	require.Empty(t, parked)
	found = b.findings()
	require.Len(t, found["processes"], 1)
	require.Contains(t, found["processes"][0], "no process that handles them")
}

// errorOf is the error of an action, whatever it has changed.
func errorOf(_ int, err error) error { return err }

// Each statement that stands for a right must need just that right.
func TestDoctor_names_each_right_that_a_role_lacks(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.Postgres(t))
	var schema string
	require.NoError(t, b.database.DB.QueryRowContext(t.Context(), "SELECT current_schema()").Scan(&schema))
	_, reader := b.role("SELECT ON ALL TABLES IN SCHEMA " + schema)
	var named []string
	for _, text := range reader.findings()["rights"] {
		_, grant, _ := strings.Cut(text, "→ GRANT ")
		grant, _, _ = strings.Cut(grant, " TO ")
		named = append(named, grant)
	}
	require.ElementsMatch(t, []string{
		"INSERT ON postbox_messages", "UPDATE (attempts, starts, available_at) ON postbox_messages", "DELETE ON postbox_messages",
		"UPDATE (paused_at, paused_by, pause_reason, pause_ends_at) ON postbox_spools", "UPDATE (version) ON postbox_spools", "UPDATE (settings) ON postbox_spools",
		"INSERT ON postbox_pauses", "DELETE ON postbox_pauses", "INSERT ON postbox_topic_pauses", "DELETE ON postbox_topic_pauses",
		"INSERT ON postbox_dead_letters", "UPDATE (resolved_at, resolution) ON postbox_dead_letters", "DELETE ON postbox_dead_letters",
		"INSERT ON postbox_failures", "UPDATE (subject) ON postbox_failures", "INSERT ON postbox_audit", "UPDATE (affected, note) ON postbox_audit", "DELETE ON postbox_claims",
	}, named)
}

// A role that may read one column may not show the rows.
func TestDoctor_wants_all_columns_that_are_shown(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.Postgres(t))
	var schema string
	require.NoError(t, b.database.DB.QueryRowContext(t.Context(), "SELECT current_schema()").Scan(&schema))
	name, reader := b.role("SELECT ON ALL TABLES IN SCHEMA " + schema)
	b.database.Exec(t, "REVOKE SELECT ON postbox_history, postbox_claims FROM "+name)
	b.database.Exec(t, "GRANT SELECT (id), INSERT ON postbox_history TO "+name)
	rights := strings.Join(reader.findings()["rights"], "\n")
	require.Contains(t, rights, "GRANT SELECT ON postbox_history")
	require.Contains(t, rights, "GRANT SELECT (claim_key) ON postbox_claims")
}
