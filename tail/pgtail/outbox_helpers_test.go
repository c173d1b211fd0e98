package pgtail_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/tail/pgtail"
)

// permanentSlot is the name of the slot for messages that are in the log alone.
const permanentSlot = "(" + slotName + " || '_outbox')"

// newOutboxWorld returns a database whose log is set up for messages, or skips the test.
func newOutboxWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, Database: testdb.PostgresLog(t), recorder: &recorder{values: map[string]float64{}}}
	w.needsMessages()
	w.setUpOutbox()
	return w
}

// newOutboxWorldAlone is newOutboxWorld in a database of its own, in which no other test changes a table.
func newOutboxWorldAlone(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, Database: testdb.PostgresLog(t), recorder: &recorder{values: map[string]float64{}}}
	w.needsMessages()
	database := *w.Database
	database.DSN = w.otherDatabase()
	database.DB = database.Open(t)
	w.Database = &database
	w.setUpOutbox()
	return w
}

// setUpOutbox sets the log up for messages.
func (w *world) setUpOutbox() {
	w.Helper()
	w.Migrate(w.T)
	w.Cleanup(func() { // slots have one name space for the whole server, and make it keep its log
		_, err := w.DB.ExecContext(context.Background(), "DROP PUBLICATION IF EXISTS "+w.permanentSlot())
		require.NoError(w, err)
		require.Eventually(w, func() bool { return w.dropSlot() }, patience, testdb.PollPause)
	})
	require.NoError(w, pgtail.SetupOutbox(w.Context(), w.Postbox(), w.outboxConfig()))
}

// permanentSlot is the name of the slot, and of its publication.
func (w *world) permanentSlot() (name string) {
	w.Helper()
	require.NoError(w, w.DB.QueryRowContext(context.Background(), "SELECT "+permanentSlot).Scan(&name))
	return name
}

// acceptLoss is [pgtail.AcceptLoss] for tests that do not look at what was lost.
func acceptLoss(ctx context.Context, db postbox.Database, config pgtail.OutboxConfig) error {
	_, err := pgtail.AcceptLoss(ctx, db, config)
	return err
}

// dropSlot drops the slot, and reports whether it is gone.
func (w *world) dropSlot() bool {
	_, err := w.DB.ExecContext(context.Background(), "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = "+permanentSlot)
	return err == nil
}

func (w *world) outboxConfig() pgtail.OutboxConfig { return pgtail.OutboxConfig{DSN: w.DSN} }

// outboxTail returns an Outbox, as a process has it.
func (w *world) outboxTail() *pgtail.Outbox {
	w.Helper()
	made, err := pgtail.NewOutbox(w.outboxConfig())
	require.NoError(w, err)
	return made
}

// reader starts a forwarder that reads messages from the log.
func (w *world) reader(broker message.Publisher, change ...func(*forwarder.Config)) *running {
	w.Helper()
	config := forwarder.Config{Tail: w.outboxTail()}
	for _, f := range change {
		f(&config)
	}
	return w.start(broker, config)
}

// emit writes messages into the log in a transaction of another process.
func (w *world) emit(messages ...*message.Message) {
	w.Helper()
	w.inTx("outbox", func(tx *sql.Tx, _ func(topic string, messages ...*message.Message)) {
		require.NoError(w, w.emitter("outbox").Bind(tx).Publish("orders", messages...))
	})
}

// settled waits until the position after all earlier messages is stored.
func (w *world) settled(b *broker) {
	w.Helper()
	before := w.Count(w.T, "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint")
	w.emit(keyed("settled", "other"))
	w.eventually(func() bool {
		return b.has("settled") && w.Count(w.T, "SELECT position FROM postbox_log_position") > before
	}, "the position is stored")
}

func (w *world) emitter(outbox string) *forwarder.Publisher {
	w.Helper()
	publisher, err := forwarder.NewPublisher(w.Postbox(), forwarder.PublisherConfig{Log: true, Outbox: outbox, Lanes: map[string]int{"second": 4}[outbox], AllowAutocommit: true}, nil)
	require.NoError(w, err)
	return publisher
}

// cutOutbox ends the connection that sends the messages of the log.
func (w *world) cutOutbox() {
	w.Exec(w.T, "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = "+permanentSlot)
}

// waitsForPosition reports whether a statement waits for a process that has locked the stored position. Slots that other tests make wait for its transaction, too.
func (w *world) waitsForPosition(holder int) bool {
	return w.Count(w.T, "SELECT COUNT(*) FROM pg_stat_activity WHERE query LIKE '%log_position%' AND ? = ANY (pg_blocking_pids(pid))", holder) > 0
}

func (w *world) rows() int { return w.Count(w.T, "SELECT COUNT(*) FROM postbox_messages") }

// needsMessages skips the test on a server that does not send messages of its log.
func (w *world) needsMessages() {
	w.Helper()
	if version := w.Count(w.T, "SELECT current_setting('server_version_num')::int"); version < 140_000 {
		w.Skipf("PostgreSQL 14 or later is missing: version %d does not send messages of its log", version)
	}
}

// counted returns how often a message was published.
func (b *broker) counted(id string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.got {
		if m.UUID == id {
			n++
		}
	}
	return n
}

// first returns the first message that was published under an id.
func (b *broker) first(id string) *message.Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.got {
		if m.UUID == id {
			return m
		}
	}
	return nil
}
