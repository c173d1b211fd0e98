package pgtail_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/metrics"
)

// Also covers G3.
func TestOutbox_G1_publishes_what_was_committed(t *testing.T) {
	t.Parallel()
	w, b := newOutboxWorld(t), &broker{}
	f := w.reader(b)
	outbox := w.emitter("outbox")

	require.NoError(t, forwarder.InTx(t.Context(), w.DB, func(ctx context.Context, tx *sql.Tx) error {
		publish := func(id string) error {
			m := keyed(id, "key")
			m.Metadata.Set("bytes", "\xff\x00")
			m.SetContext(ctx)
			return outbox.Publish("orders", m)
		}
		require.NoError(t, publish("first"))
		_, err := tx.ExecContext(ctx, "SAVEPOINT undone")
		require.NoError(t, err)
		require.NoError(t, publish("undone"))
		_, err = tx.ExecContext(ctx, "ROLLBACK TO SAVEPOINT undone")
		require.NoError(t, err)
		_, err = tx.ExecContext(ctx, "SAVEPOINT kept")
		require.NoError(t, err)
		require.NoError(t, publish("second"))
		_, err = tx.ExecContext(ctx, "RELEASE SAVEPOINT kept")
		require.NoError(t, err)
		require.Zero(t, w.rows())
		return nil
	}))
	require.ErrorIs(t, forwarder.InTx(t.Context(), w.DB, func(ctx context.Context, _ *sql.Tx) error {
		m := keyed("rolled back", "key")
		m.SetContext(ctx)
		require.NoError(t, outbox.Publish("orders", m))
		return errBroker
	}), errBroker)
	require.NoError(t, outbox.Publish("orders", keyed("third", "key"), message.NewMessage("", nil))) // by itself

	w.eventually(func() bool { return b.has("third") && w.rows() == 0 }, "all are published")
	require.Equal(t, []string{"first", "second", "third"}, b.ids("key"))
	got := b.first("first")
	require.Equal(t, "payload of first", string(got.Payload))
	require.Equal(t, "\xff\x00", got.Metadata.Get("bytes"))
	w.eventually(func() bool { return w.recorder.value(metrics.LogTaken) == 4 }, "they are counted once the position is stored")
	f.stop(t)
}

// A transaction that began first may be committed last. What counts is the order of commits.
func TestOutbox_G3_has_the_order_of_commits_for_several_outboxes(t *testing.T) {
	t.Parallel()
	w, b := newOutboxWorld(t), &broker{}
	first, err := w.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = first.Rollback() }()
	require.NoError(t, w.emitter("outbox").Bind(first).Publish("orders", keyed("late", "key")))
	w.emit(keyed("early", "key"))
	require.NoError(t, w.emitter("second").Publish("orders", keyed("other", "another")))
	require.NoError(t, first.Commit())

	f := w.reader(b) // of the first outbox alone, and it stores the messages of the other one, too
	w.eventually(func() bool { return b.has("late") && w.rows() == 1 }, "the messages are stored, and those of this outbox published")
	require.Equal(t, []string{"early", "late"}, b.ids("key"))
	other := w.reader(b, func(c *forwarder.Config) { c.Outbox, c.Lanes = "second", 4 })
	w.eventually(func() bool { return b.has("other") }, "another forwarder publishes the others")
	require.Equal(t, 1, b.counted("other"))
	f.stop(t)
	other.stop(t)
}

func TestOutbox_delays_count_from_the_commit(t *testing.T) {
	t.Parallel()
	w, b := newOutboxWorld(t), &broker{}
	later, hour := keyed("later", "key"), keyed("hour", "key")
	delay.Message(later, delay.For(time.Millisecond))
	delay.Message(hour, delay.For(time.Hour))
	w.emit(later, hour, keyed("now", "key"))
	f := w.reader(b)
	w.eventually(func() bool {
		return b.has("later", "now") && w.Count(t, "SELECT COUNT(*) FROM postbox_waiting") == 1
	}, "the messages whose time has come are published")
	require.False(t, b.has("hour"))
	due := w.Count(t, "SELECT (available_at / 1000000 - date_part('epoch', clock_timestamp()))::int FROM postbox_waiting")
	require.InDelta(t, 3600, due, 60)
	f.stop(t)
}

// A message that fails holds back its key, whether its later messages are still in the log or not.
func TestOutbox_G3_holds_with_messages_that_fail(t *testing.T) {
	t.Parallel()
	w, b := newOutboxWorld(t), &broker{}
	failures := map[string]int{}
	b.fail = func(m *message.Message) error { // each third message fails twice
		if failures[m.UUID]++; m.UUID[len(m.UUID)-1]%3 == 0 && failures[m.UUID] <= 2 {
			return errBroker
		}
		return nil
	}
	f := w.reader(b, func(c *forwarder.Config) {
		c.Retry = postbox.RetryProfile{Base: time.Millisecond, Cap: 2 * time.Millisecond, Attempts: 100}
		c.ProbeMin, c.ProbeMax = time.Millisecond, time.Millisecond
	})
	for i := range 10 {
		for _, key := range []string{"a", "b", "c"} {
			w.emit(keyed(fmt.Sprintf("%s-%05d", key, i), key))
		}
	}
	w.eventually(func() bool { return b.has("a-00009", "b-00009", "c-00009") && w.rows() == 0 }, "all are published")
	for _, key := range []string{"a", "b", "c"} {
		_, want := numbered(key, 10)
		require.Equal(t, want, b.ids(key))
	}
	f.stop(t)
}

// Rows that were written before messages of the log come before them.
func TestOutbox_G3_holds_when_publishers_change_from_rows_to_the_log(t *testing.T) {
	t.Parallel()
	w, b := newOutboxWorld(t), &broker{}
	w.publish("orders", keyed("row", "key"))
	w.emit(keyed("log", "key"))
	f := w.reader(b)
	w.eventually(func() bool { return b.has("row", "log") }, "both are published")
	require.Equal(t, []string{"row", "log"}, b.ids("key"))
	f.stop(t)
}

// A transaction is stored in parts, so that memory and transactions are bounded.
// Also covers G8.
func TestOutbox_G2_of_a_large_transaction_that_is_cut_in_between(t *testing.T) {
	t.Parallel()
	w, b := newOutboxWorld(t), &broker{}
	messages, ids := numbered("key", 3500)
	w.emit(keyed("before", "other"))
	w.emit(messages...)
	w.emit(keyed("after", "key"))
	w.reserveHere() // otherwise messages that are published without a row are published again after the refusal
	w.Exec(t, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF NEW.part >= 2000 THEN RAISE 'trouble'; END IF; RETURN NEW; END $$`)
	w.Exec(t, "CREATE TRIGGER refuse BEFORE UPDATE ON postbox_log_position FOR EACH ROW EXECUTE FUNCTION refuse()")
	f := w.reader(b)
	w.eventually(func() bool { return f.log.count("trouble") > 0 }, "the second part fails")
	require.Positive(t, w.Count(t, "SELECT part FROM postbox_log_position"))
	w.Exec(t, "DROP TRIGGER refuse ON postbox_log_position")
	w.eventually(func() bool { return b.has("after") && w.rows() == 0 }, "all are published")
	require.Equal(t, append(ids, "after"), b.ids("key"), "each once, and in order")
	f.stop(t)
}

// Receipts that the producer awaits are rows of the transaction, which also has the message.
func TestOutbox_G1_awaits_receipts_of_messages_in_the_log(t *testing.T) {
	t.Parallel()
	w := newOutboxWorld(t)
	outbox, err := forwarder.NewPublisher(w.Postbox(), forwarder.PublisherConfig{
		Log: true, AllowAutocommit: true, Receipts: []forwarder.Expectation{{Topic: "orders", Consumers: []string{"payments"}, Within: time.Hour}},
	}, nil)
	require.NoError(t, err)
	require.NoError(t, outbox.Publish("orders", keyed("one", "key"), keyed("two", "key")))
	require.Equal(t, 2, w.Count(t, "SELECT COUNT(*) FROM postbox_receipts"))
}
