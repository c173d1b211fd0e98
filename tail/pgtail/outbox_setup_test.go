package pgtail_test

import (
	"context"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/tail/pgtail"
)

func TestSetupOutbox_can_be_repeated_and_undone(t *testing.T) {
	t.Parallel()
	w, ctx := newOutboxWorld(t), t.Context()
	require.NoError(t, pgtail.SetupOutbox(ctx, w.Postbox(), w.outboxConfig()))
	require.NoError(t, pgtail.CheckOutbox(ctx, w.Postbox(), w.outboxConfig()))
	before := w.Count(t, "SELECT position FROM postbox_log_position")
	w.emit(keyed("unread", "key"))
	require.ErrorContains(t, pgtail.RemoveOutbox(ctx, w.Postbox(), w.outboxConfig()), "messages that were not stored")

	b := &broker{}
	f := w.reader(b)
	w.eventually(func() bool { return b.has("unread") }, "it is published")
	require.ErrorContains(t, pgtail.RemoveOutbox(ctx, w.Postbox(), w.outboxConfig()), "another process reads the log")
	const confirmed = "SELECT (pg_wal_lsn_diff(confirmed_flush_lsn, '0/0') >= p.position AND p.position > ?)::int FROM pg_replication_slots, postbox_log_position p WHERE slot_name = " + permanentSlot
	w.eventually(func() bool { return w.Count(t, confirmed, before) == 1 }, "the position after it is confirmed")
	f.stop(t)
	statements, err := spool.StatementsIn(w.Postbox())
	require.NoError(t, err)
	mark := statements.MarkLog() // as postbox drain writes it, which is no message
	require.NoError(t, w.DB.QueryRowContext(ctx, mark.Text, mark.Args...).Scan(new(int64)))
	for range 2 {
		w.eventually(func() bool { return pgtail.RemoveOutbox(ctx, w.Postbox(), w.outboxConfig()) == nil }, "it is removed once the server knows that the process is gone")
	}
	require.ErrorContains(t, pgtail.CheckOutbox(ctx, w.Postbox(), w.outboxConfig()), "run pgtail.SetupOutbox")
	require.ErrorContains(t, acceptLoss(ctx, w.Postbox(), w.outboxConfig()), "run pgtail.SetupOutbox")
	require.ErrorContains(t, <-w.reader(b).ended, "run pgtail.SetupOutbox")
	require.ErrorContains(t, w.emitter("outbox").Publish("orders", keyed("refused", "key")), "run pgtail.SetupOutbox")
}

// The server keeps nothing yet for a slot that is still being made: it waits for transactions that are open.
func TestSetupOutbox_G1_a_publisher_waits_for_a_complete_slot(t *testing.T) {
	t.Parallel()
	w, b := newOutboxWorld(t), &broker{}
	require.NoError(t, pgtail.RemoveOutbox(t.Context(), w.Postbox(), w.outboxConfig()))
	open, err := w.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = open.Rollback() }()
	_, err = open.ExecContext(t.Context(), "SELECT pg_current_xact_id()")
	require.NoError(t, err)
	setUp := make(chan error, 1)
	go func() { setUp <- pgtail.SetupOutbox(context.Background(), w.Postbox(), w.outboxConfig()) }()
	w.eventually(func() bool {
		return w.Count(t, "SELECT COUNT(*) FROM pg_replication_slots WHERE slot_name = "+permanentSlot) == 1
	}, "the slot is being made")
	require.ErrorContains(t, w.emitter("outbox").Publish("orders", keyed("refused", "key")), "run pgtail.SetupOutbox")
	require.ErrorContains(t, pgtail.RemoveOutbox(t.Context(), w.Postbox(), w.outboxConfig()), "still being made")
	require.NoError(t, open.Rollback())
	require.NoError(t, <-setUp)

	w.emit(keyed("kept", "key"))
	f := w.reader(b)
	w.eventually(func() bool { return b.has("kept") }, "it is published")
	require.Equal(t, []string{"kept"}, b.ids("key"))
	f.stop(t)
}

func TestOutbox_is_for_PostgreSQL_alone(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	config := pgtail.OutboxConfig{DSN: "postgres://localhost/db"}
	require.ErrorContains(t, pgtail.SetupOutbox(t.Context(), database.Postbox(), config), "only that of PostgreSQL")
	_, err := forwarder.NewPublisher(database.Postbox(), forwarder.PublisherConfig{Log: true}, nil)
	require.ErrorContains(t, err, "only PostgreSQL can do that")
	_, err = pgtail.NewOutbox(pgtail.OutboxConfig{})
	require.ErrorContains(t, err, "DSN is missing")
}

// The role of DSN needs REPLICATION and no right on any table. A producer needs no right on any table. The forwarder has the
// rights of docs/security.md.
func TestOutbox_needs_few_rights(t *testing.T) {
	t.Parallel()
	w, b := newOutboxWorld(t), &broker{}
	config := pgtail.OutboxConfig{DSN: w.role("LOGIN REPLICATION")}
	require.NoError(t, pgtail.CheckOutbox(t.Context(), w.Postbox(), config))
	reading, err := pgtail.NewOutbox(config)
	require.NoError(t, err)
	require.NoError(t, w.emitter("new").Publish("orders", keyed("of a new outbox", "key")))
	database := *w.Database
	database.DSN = w.granted("LOGIN", "forwarder", "forwarder with the log")
	f := (&world{T: t, Database: &database, recorder: w.recorder}).start(b, forwarder.Config{Tail: reading})

	producer := w.openAs(w.role("LOGIN"))
	publisher, err := forwarder.NewPublisher(w.On(producer), forwarder.PublisherConfig{Log: true, AllowAutocommit: true}, nil)
	require.NoError(t, err)
	require.NoError(t, publisher.Publish("orders", keyed("message", "key")))
	w.eventually(func() bool { return b.has("message") && w.rows() == 1 }, "it is published, and the other outbox was registered")
	w.eventually(func() bool { return f.log.count("reads messages from the log") == 1 }, "the log is read")
	stored := w.stored()
	require.NoError(t, publisher.Publish("orders", keyed("direct", "key")))
	w.eventually(func() bool { return b.has("direct") }, "it is published")
	require.Equal(t, stored, w.stored(), "without a row")
	f.stop(t)
	require.Zero(t, f.log.count("denied"), "%v", f.log.all())

	unique := postbox.SkipIfWaiting(keyed("unique", "key"), "unique")
	require.ErrorContains(t, w.emitter("outbox").Publish("orders", unique), "cannot have a unique key")

	config.DSN = w.role("LOGIN")
	require.ErrorContains(t, pgtail.CheckOutbox(t.Context(), w.Postbox(), config), "give it LOGIN and REPLICATION")
}

// granted makes a role with attributes and the rights that docs/security.md has under these headings, and returns its address.
func (w *world) granted(attributes string, headings ...string) (dsn string) {
	w.Helper()
	dsn = w.role(attributes)
	address, err := url.Parse(dsn)
	require.NoError(w, err)
	text, err := os.ReadFile("../../docs/security.md")
	require.NoError(w, err)
	var schema, database string
	require.NoError(w, w.DB.QueryRowContext(w.Context(), "SELECT current_schema(), current_database()").Scan(&schema, &database))
	names := strings.NewReplacer(" SCHEMA public ", " SCHEMA "+schema+" ", " DATABASE shop ", " DATABASE "+database+" ")
	to := regexp.MustCompile(` TO \w+;`)
	for _, heading := range headings {
		_, section, found := strings.Cut(string(text), "\n### "+heading+"\n")
		require.True(w, found, heading)
		_, block, found := strings.Cut(section, "```sql\n")
		require.True(w, found, heading)
		block, _, _ = strings.Cut(block, "```")
		for grant := range strings.Lines(block) {
			if !strings.Contains(grant, "postbox_writers") { // which PostgreSQL does not have
				w.Exec(w.T, names.Replace(to.ReplaceAllString(grant, " TO "+address.User.Username()+";")))
			}
		}
	}
	return dsn
}
