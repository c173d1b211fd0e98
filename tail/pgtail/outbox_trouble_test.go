package pgtail_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/health"
	"github.com/postbox-go/watermill-postbox/tail/pgtail"
)

// Also covers G2.
func TestOutbox_G3_one_process_reads_and_another_takes_over(t *testing.T) {
	t.Parallel()
	w, b := newOutboxWorld(t), &broker{}
	first := w.reader(b)
	w.eventually(func() bool { return first.log.count("reads messages from the log") == 1 }, "the first one reads")
	second := w.reader(b)
	w.eventually(func() bool { return second.log.count("stands by") == 1 }, "the second one stands by")
	var want []string
	for i := range 10 {
		id := fmt.Sprint("key-", i)
		w.emit(keyed(id, "key"))
		if want = append(want, id); i == 5 {
			first.stop(t)
		}
	}
	w.eventually(func() bool { return b.has("key-9") && w.rows() == 0 }, "the second one takes over")
	require.Equal(t, want, b.ids("key"), "each once, and in order")
	second.stop(t)
}

// A process that ends after it has stored messages and before it has confirmed the position gets them again, and skips
// them.
func TestOutbox_G2_stores_nothing_twice_after_a_crash(t *testing.T) {
	t.Parallel()
	w, b := newOutboxWorld(t), &broker{}
	f := w.reader(b)
	confirmed := "SELECT (pg_wal_lsn_diff(confirmed_flush_lsn, '0/0') >= p.position)::int FROM pg_replication_slots, postbox_log_position p WHERE slot_name = " + permanentSlot
	for i := range 5 {
		id := fmt.Sprint("message-", i)
		w.emit(keyed(id, "key"))
		w.eventually(func() bool { return b.has(id) }, "it is published")
		w.cutOutbox()
	}
	w.eventually(func() bool { return f.log.count("reads messages from the log") == 6 && w.Count(t, confirmed) == 1 }, "the position is confirmed in the end")
	require.Len(t, b.ids("key"), 5, "none was stored twice")
	require.Equal(t, 5, f.log.count("cannot read messages from the log"), "%v", f.log.all())
	f.stop(t)
}

// Forwarders come and go, connections are cut, the broker fails now and then. Nothing is lost, and each key is
// published in order.
// Also covers G2 and G9.
func TestOutbox_G3_holds_in_all_kinds_of_trouble(t *testing.T) {
	t.Parallel()
	w, b := newOutboxWorld(t), &broker{}
	b.fail = func(m *message.Message) error {
		if rand.IntN(60) == 0 { //nolint:gosec // a test
			return fmt.Errorf("%w of %s", errBroker, m.UUID)
		}
		return nil
	}
	spawn := func() *running {
		return w.reader(b, func(c *forwarder.Config) {
			c.Retry = postbox.RetryProfile{Base: 5 * time.Millisecond, Cap: 20 * time.Millisecond, Attempts: 1000}
			c.PollMin, c.ProbeMin, c.ProbeMax, c.Lease = time.Millisecond, time.Millisecond, 10*time.Millisecond, 2*time.Second
		})
	}
	const keys, perKey = 4, 60
	working, stopped := context.WithCancel(t.Context())
	var producers, trouble sync.WaitGroup
	for k := range keys {
		producers.Go(func() {
			messages, _ := numbered(fmt.Sprint("key", k), perKey)
			for len(messages) > 0 {
				size := min(1+rand.IntN(3), len(messages)) //nolint:gosec // a test
				w.emit(messages[:size]...)
				messages = messages[size:]
			}
		})
	}
	trouble.Go(func() {
		forwarders := []*running{spawn(), spawn()}
		for i := 0; working.Err() == nil; i++ {
			if i%2 == 0 {
				w.cutOutbox()
			} else {
				forwarders[0].stop(t)
				forwarders = append(forwarders[1:], spawn())
			}
			pause(working, 300*time.Millisecond)
		}
		for _, f := range forwarders {
			f.stop(t)
		}
	})
	producers.Wait()
	stopped()
	trouble.Wait()
	last := spawn()
	w.emit(keyed("last", "last"))
	for k := range keys { // one may not be stored yet when a later one of another key is published without a row
		_, want := numbered(fmt.Sprint("key", k), perKey)
		w.eventually(func() bool { return b.has(want...) }, "all messages are published")
		require.Equal(t, want, first(b.ids(fmt.Sprint("key", k))), "each key in order")
	}
	w.eventually(func() bool { return b.has("last") && w.rows() == 0 }, "all rows are removed")
	last.stop(t)
}

// A slot that is gone is a loss: nothing goes on before an operator has accepted it.
func TestOutbox_refuses_to_go_on_after_its_slot_was_lost(t *testing.T) {
	t.Parallel()
	w, b := newOutboxWorld(t), &broker{}
	outbox := w.emitter("outbox")
	require.NoError(t, outbox.Publish("orders", keyed("before", "key")))
	require.True(t, w.dropSlot())
	require.ErrorContains(t, w.emitter("outbox").Publish("orders", keyed("refused", "key")), "run pgtail.SetupOutbox")
	w.eventually(func() bool { return outbox.Publish("orders", keyed("lost", "key")) != nil }, "a publisher that has seen the slot notices it within a second")

	f := w.reader(b)
	require.ErrorIs(t, <-f.ended, pgtail.ErrSlotLost)
	require.ErrorContains(t, health.Alive(f), "messages that were in the log alone may be lost")
	for _, call := range []func(context.Context, postbox.Database, pgtail.OutboxConfig) error{pgtail.SetupOutbox, pgtail.CheckOutbox} {
		require.ErrorIs(t, call(t.Context(), w.Postbox(), w.outboxConfig()), pgtail.ErrSlotLost)
	}

	w.Exec(t, "SELECT pg_create_logical_replication_slot("+permanentSlot+", 'pgoutput')") // by an operator who does not know
	require.ErrorIs(t, <-w.reader(b).ended, pgtail.ErrSlotLost)

	require.NoError(t, acceptLoss(t.Context(), w.Postbox(), w.outboxConfig()))
	require.NoError(t, pgtail.CheckOutbox(t.Context(), w.Postbox(), w.outboxConfig()))
	require.NoError(t, outbox.Publish("orders", keyed("after", "key")))
	again := w.reader(b)
	w.eventually(func() bool { return b.has("after") }, "it goes on")
	require.Equal(t, []string{"after"}, b.ids("key"))
	again.stop(t)
}

// The server says only that an object does not exist, as it does if tables or publications are missing.
func TestOutbox_says_that_its_slot_is_lost_also_if_that_happens_while_it_connects(t *testing.T) {
	t.Parallel()
	w := newOutboxWorld(t)
	reader := w.outboxTail()
	reader.OnConnect(func() { w.dropSlot() })
	f := w.start(&broker{}, forwarder.Config{Tail: reader})
	require.ErrorIs(t, <-f.ended, pgtail.ErrSlotLost)
}

// The log of a busy database is not kept for an outbox that gets no messages, and the position of one whose broker is
// away is confirmed all the same.
func TestOutbox_G12_confirms_its_position_while_idle_and_while_the_broker_is_away(t *testing.T) {
	t.Parallel()
	w, b := newOutboxWorld(t), &broker{}
	b.fail = func(*message.Message) error { return errBroker }
	f := w.reader(b)
	w.emit(keyed("stuck", "key"))
	w.eventually(func() bool { return w.rows() == 1 }, "it is stored")
	const confirmed = "SELECT (confirmed_flush_lsn >= ?::pg_lsn)::int FROM pg_replication_slots WHERE slot_name = " + permanentSlot
	end := func() (end string) {
		require.NoError(t, w.DB.QueryRowContext(t.Context(), "SELECT pg_current_wal_insert_lsn()::text").Scan(&end))
		return end
	}
	w.Exec(t, "SELECT pg_logical_emit_message(false, 'busy', repeat('x', 17000000))")
	busy := end()
	w.eventually(func() bool { return w.Count(t, confirmed, busy) == 1 }, "the position is confirmed")
	require.False(t, b.has("stuck"))
	f.stop(t)
}

// A position that is confirmed before its messages are published or stored is a loss if the process is killed then.
func TestOutbox_G2_confirms_no_message_before_it_is_published_or_stored(t *testing.T) {
	t.Parallel()
	w, b := newOutboxWorld(t), &broker{}
	released, calls := make(chan struct{}), atomic.Int32{}
	release := sync.OnceFunc(func() { close(released) })
	defer release()
	f := w.reading(publisherFunc(func(topic string, messages ...*message.Message) error {
		calls.Add(1)
		<-released
		return b.Publish(topic, messages...)
	}))
	w.emit(keyed("slow", "key"))
	w.eventually(func() bool { return calls.Load() == 1 }, "it is being published")
	const received = `SELECT COUNT(*) FROM pg_replication_slots s JOIN pg_stat_replication r ON r.pid = s.active_pid
		WHERE r.write_lsn >= ?::pg_lsn AND s.slot_name = ` + permanentSlot
	var end string
	require.NoError(t, w.DB.QueryRowContext(t.Context(), "SELECT pg_current_wal_insert_lsn()::text").Scan(&end))
	w.eventually(func() bool { return w.Count(t, received, end) == 1 }, "the server knows that it was received")
	const early = "SELECT COUNT(*) FROM pg_replication_slots, postbox_log_position p WHERE pg_wal_lsn_diff(confirmed_flush_lsn, '0/0') > p.position AND slot_name = " + permanentSlot
	require.Zero(t, w.Count(t, early), "what is not stored is not confirmed")
	release()
	w.eventually(func() bool { return b.has("slow") }, "it goes on")
	f.stop(t)
}
