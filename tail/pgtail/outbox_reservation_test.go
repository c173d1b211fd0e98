package pgtail_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/metrics"
)

// reserveHere makes a reservation for all that is in the log, as a session leaves it that was killed.
func (w *world) reserveHere() {
	w.Helper()
	w.Exec(w.T, "UPDATE postbox_log_position SET reserved = pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint, reserved_epoch = epoch")
}

// known registers the outbox: what is read before that gets rows.
func (w *world) known(b *broker) {
	w.Helper()
	w.served(b)
}

// served runs a reader until it has published these messages, and stops it.
func (w *world) served(b *broker, ids ...string) {
	w.Helper()
	before := w.recorder.value(metrics.LogTaken)
	f := w.reading(b)
	w.eventually(func() bool {
		return b.has(ids...) && w.rows() == 0 && w.recorder.value(metrics.LogTaken) == before+float64(len(ids))
	}, "all are published, and the position is stored")
	f.stop(w.T)
}

func TestOutbox_G3_a_backlog_needs_no_rows_after_a_process_has_ended(t *testing.T) {
	t.Parallel()
	w, b := newOutboxWorld(t), &broker{}
	var want [2][]string
	backlog := func() (ids []string) {
		for i := range 40 {
			key := i % 2
			id := fmt.Sprintf("%d-%03d", key, len(want[key]))
			w.emit(keyed(id, fmt.Sprint("key-", key)))
			want[key], ids = append(want[key], id), append(ids, id)
		}
		return ids
	}
	w.known(b)
	w.served(b, backlog()...)
	w.served(b, backlog()...)
	f := w.reading(b)
	w.emit(keyed("between", "other"))
	w.eventually(func() bool { return b.has("between") }, "it reads")
	w.cutOutbox() // the session ends, and the process goes on
	ids := backlog()
	w.eventually(func() bool { return b.has(ids...) }, "it reads again")
	f.stop(t)
	require.Equal(t, want[0], b.ids("key-0"), "each once, and in order")
	require.Equal(t, want[1], b.ids("key-1"))
	require.Zero(t, w.stored())
}

// Only what a process may have begun to publish before it was killed gets rows.
func TestOutbox_G2_stores_what_a_process_that_was_killed_may_have_published(t *testing.T) {
	t.Parallel()
	w, b := newOutboxWorld(t), &broker{}
	w.known(b)
	w.emit(keyed("near-1", "a"), keyed("near-2", "b"))
	w.reserveHere()
	w.emit(keyed("far-1", "c"), keyed("far-2", "d"))
	w.served(b, "near-1", "near-2", "far-1", "far-2")
	require.Equal(t, 2, w.stored())

	// A process of an earlier version takes the log, publishes without a reservation, and is killed.
	w.emit(keyed("earlier-1", "a"), keyed("earlier-2", "b"))
	w.Exec(t, "UPDATE postbox_log_position SET epoch = epoch + 1")
	w.served(b, "earlier-1", "earlier-2")
	require.Equal(t, 4, w.stored())

	w.emit(keyed("last", "a"))
	w.served(b, "last")
	require.Equal(t, 4, w.stored(), "the next one has left a reservation again")
}

// A session stores a part of what an earlier one may have published, and fails. The rest stays reserved.
func TestOutbox_G2_keeps_the_reservation_of_an_earlier_process(t *testing.T) {
	t.Parallel()
	w, b := newOutboxWorld(t), &broker{}
	large := func(id string) *message.Message {
		m := keyed(id, id)
		m.Payload = []byte(strings.Repeat("x", 5<<20)) // more than is stored together, and than is reserved beyond it
		return m
	}
	start := w.Count(t, "SELECT position FROM postbox_log_position")
	w.emit(large("first"))
	w.emit(large("second"))
	w.reserveHere()
	w.Exec(t, "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'trouble'; END $$")
	w.Exec(t, fmt.Sprintf("CREATE TRIGGER refuse BEFORE UPDATE OF position ON postbox_log_position FOR EACH ROW WHEN (NEW.part > 0 AND NEW.position > %d) EXECUTE FUNCTION refuse()", start))
	w.Exec(t, `CREATE TRIGGER kill BEFORE UPDATE OF reserved ON postbox_log_position FOR EACH ROW
		WHEN (NEW.position = OLD.position AND NEW.part = OLD.part AND NEW.epoch = OLD.epoch) EXECUTE FUNCTION refuse()`)
	reader := w.outboxTail()
	var sessions atomic.Int32
	reader.OnConnect(func() { sessions.Add(1) })
	f := w.start(b, forwarder.Config{Tail: reader})
	w.eventually(func() bool { return b.has("first") && sessions.Load() >= 3 }, "the first one is stored, and sessions end as if they were killed")
	w.Exec(t, "DROP TRIGGER kill ON postbox_log_position")
	before := sessions.Load()
	w.eventually(func() bool { return sessions.Load() >= before+2 }, "a session fails and ends by itself")
	require.False(t, b.has("second"), "it was not published without a row")
	w.Exec(t, "DROP TRIGGER refuse ON postbox_log_position")
	w.eventually(func() bool { return b.has("second") && w.rows() == 0 }, "it goes on")
	require.Equal(t, 1, b.counted("second"))
	f.stop(t)
}

// Another process claims the log while this one makes a reservation.
func TestOutbox_G6_a_process_that_was_replaced_makes_no_reservation(t *testing.T) {
	t.Parallel()
	w, b := newOutboxWorld(t), &broker{}
	f := w.reading(b)
	tx, err := w.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	var pid int
	require.NoError(t, tx.QueryRowContext(t.Context(), "SELECT pg_backend_pid() FROM postbox_log_position FOR UPDATE").Scan(&pid))
	w.Exec(t, "SELECT pg_logical_emit_message(false, 'busy', repeat('x', 5000000))") // more than is reserved
	w.emit(keyed("one", "key"))
	w.eventually(func() bool { return w.waitsForPosition(pid) }, "it makes a reservation")
	require.Zero(t, b.counted("one"), "it is published after that")
	_, err = tx.ExecContext(t.Context(), "UPDATE postbox_log_position SET epoch = epoch + 1, reserved_epoch = epoch + 1")
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	w.eventually(func() bool { return f.log.count("another process has claimed the log") == 1 }, "it notices")
	w.eventually(func() bool { return w.recorder.value(metrics.LogTaken) == 1 }, "the next session goes on")
	require.Equal(t, 1, b.counted("one"))
	f.stop(t)
}

func TestAcceptLoss_makes_a_reservation_for_the_new_slot(t *testing.T) {
	t.Parallel()
	w, b := newOutboxWorld(t), &broker{}
	w.known(b)
	w.Exec(t, "UPDATE postbox_log_position SET reserved = 1::bigint << 60, reserved_epoch = epoch") // of a server whose log was longer
	w.eventually(w.dropSlot, "the slot is dropped once the server knows that the process is gone")
	require.NoError(t, acceptLoss(t.Context(), w.Postbox(), w.outboxConfig()))
	w.emit(keyed("new", "key"))
	w.served(b, "new")
	require.Zero(t, w.stored(), "no process has read from the new slot")

	w.eventually(func() bool {
		_, err := w.DB.ExecContext(t.Context(), "SELECT pg_replication_slot_advance("+permanentSlot+", pg_current_wal_lsn())")
		return err == nil
	}, "it is moved on once the server knows that the process is gone")
	w.Exec(t, "UPDATE postbox_log_position SET position = 1")
	require.NoError(t, acceptLoss(t.Context(), w.Postbox(), w.outboxConfig()))
	w.emit(keyed("moved", "key"))
	w.served(b, "moved")
	require.Equal(t, 1, w.stored(), "a process may have read from a slot that was moved on")
}

func TestOutbox_says_that_its_table_is_of_an_earlier_version(t *testing.T) {
	t.Parallel()
	w := newOutboxWorld(t)
	w.Exec(t, "ALTER TABLE postbox_log_position DROP COLUMN reserved")
	f := w.reader(&broker{})
	select {
	case err := <-f.ended:
		require.ErrorContains(t, err, "call postbox.Migrate first")
	case <-time.After(patience):
		require.Fail(t, "it runs")
	}
}
