package pgtail_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
)

// slots returns how many processes read the log of the test's table.
func (w *world) slots() int {
	return w.Count(w.T, "SELECT COUNT(*) FROM pg_replication_slots WHERE slot_name = "+slotName)
}

// slotName is the name that the slot of the table has.
const slotName = `(SELECT 'postbox_' || oid::text || '_' || 'postbox_messages'::regclass::oid::text FROM pg_database WHERE datname = current_database())`

// cut ends the connection that sends the log, as a server does that restarts, or that invalidates
// the slot.
func (w *world) cut() {
	w.Exec(w.T, "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = "+slotName)
}

// Also covers G2.
func TestTail_G3_one_process_reads_and_another_takes_over(t *testing.T) {
	t.Parallel()
	w, b := newWorld(t), &broker{}
	first := w.start(b, forwarder.Config{Tail: w.tail()})
	w.follows(first)
	second := w.start(b, forwarder.Config{Tail: w.tail()})
	w.eventually(func() bool { return second.log.count("stands by") == 1 }, "the second one stands by")
	require.Equal(t, 1, w.slots())

	before, ids := numbered("a", 20)
	w.publish("orders", before...)
	first.stop(t)
	w.eventually(func() bool { return second.log.count("Postbox reads the log") == 1 }, "the second one takes over")
	require.Equal(t, 1, w.slots())
	w.eventually(func() bool { return b.has(ids...) }, "nothing is lost")
	w.follows(second)
	require.Equal(t, ids, b.ids("a"))
	second.stop(t)
	w.eventually(func() bool { return w.slots() == 0 }, "nothing is left behind")
}

// Also covers G3.
func TestTail_G2_goes_on_after_its_slot_was_lost(t *testing.T) {
	t.Parallel()
	w, b := newWorld(t), &broker{}
	f := w.start(b, forwarder.Config{Tail: w.tail()})
	w.follows(f)
	var ids []string
	for round := range 3 {
		w.cut()
		messages, more := numbered(string(rune('a'+round)), 10)
		for _, m := range messages { // some while there is no slot
			w.publish("orders", m)
		}
		ids = append(ids, more...)
		w.eventually(func() bool { return f.log.count("Postbox reads the log") == round+2 }, "there is a new slot")
		w.follows(f)
		w.eventually(func() bool { return b.has(more...) }, "nothing is lost")
		require.Equal(t, more, b.ids(string(rune('a'+round))))
	}
	require.True(t, b.has(ids...))
	require.Equal(t, 3, f.log.count("cannot read the log"), "each loss is logged once: %v", f.log.all())
	f.stop(t)
}

// A forwarder that cannot publish does not make the server keep its log.
func TestTail_G12_confirms_its_position_while_the_broker_is_away(t *testing.T) {
	t.Parallel()
	w, b := newWorld(t), &broker{}
	b.fail = func(*message.Message) error { return errBroker }
	f := w.start(b, forwarder.Config{Tail: w.tail(), Tuning: postbox.Tuning{ProbeMax: time.Second}, Classify: func(error) postbox.ErrorClass { return postbox.Outage }})
	w.follows(f)
	position := "SELECT pg_current_wal_insert_lsn()::text"
	for range 20 {
		w.publish("orders", message.NewMessage(watermill.NewULID(), []byte("x")))
	}
	var end string
	require.NoError(t, w.DB.QueryRowContext(t.Context(), position).Scan(&end))
	w.eventually(func() bool {
		return w.Count(t, "SELECT COUNT(*) FROM pg_replication_slots WHERE confirmed_flush_lsn >= ?::pg_lsn AND slot_name = "+slotName, end) == 1
	}, "the position is confirmed")
	require.Equal(t, 20, w.Count(t, "SELECT COUNT(*) FROM postbox_messages"), "nothing was published")
	b.mu.Lock()
	b.fail = nil
	b.mu.Unlock()
	w.eventually(func() bool { return w.Count(t, "SELECT COUNT(*) FROM postbox_messages") == 0 }, "all is published")
	f.stop(t)
}
