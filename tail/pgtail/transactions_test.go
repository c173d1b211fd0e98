package pgtail_test

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/instruments"
)

type publish = func(topic string, messages ...*message.Message)

// The log has what was committed, in the order of commits, and nothing else.
// Also covers G2.
func TestTail_G3_of_aborted_nested_and_overlapping_transactions(t *testing.T) {
	t.Parallel()
	w, b := newWorld(t), &broker{}
	f := w.start(b, forwarder.Config{Tail: w.tail()})
	w.follows(f)

	aborted, err := w.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	w.publisher(aborted, "outbox")("orders", keyed("aborted", "a"))
	require.NoError(t, aborted.Rollback())

	late, err := w.DB.BeginTx(t.Context(), nil) // it is open while others commit
	require.NoError(t, err)
	w.publisher(late, "outbox")("orders", keyed("late", "b"))

	w.inTx("outbox", func(tx *sql.Tx, publish publish) {
		publish("orders", keyed("1", "a"))
		for i, end := range []string{"ROLLBACK TO SAVEPOINT s", "RELEASE SAVEPOINT s"} {
			exec(t, tx, "SAVEPOINT s")
			publish("orders", keyed(fmt.Sprintf("nested-%d", i), "a"))
			exec(t, tx, end)
		}
		publish("orders", keyed("2", "a"))
	})
	w.publish("orders", keyed("3", "a"), keyed("before", "b"))
	require.NoError(t, late.Commit())
	w.publish("orders", keyed("4", "a"))

	w.eventually(func() bool { return b.has("1", "nested-1", "2", "3", "4", "late", "before") }, "what was committed is published")
	require.Equal(t, []string{"1", "nested-1", "2", "3", "4"}, b.ids("a"))
	require.False(t, b.has("aborted") || b.has("nested-0"))
	f.stop(t)
}

func exec(t *testing.T, tx *sql.Tx, query string) {
	t.Helper()
	_, err := tx.ExecContext(t.Context(), query)
	require.NoError(t, err)
}

// More messages than the memory of a drainer holds.
// Also covers G2.
func TestTail_G3_of_a_large_transaction(t *testing.T) {
	t.Parallel()
	w, b := newWorld(t), &broker{}
	f := w.start(b, forwarder.Config{Tail: w.tail(), Tuning: postbox.Tuning{PageSize: 100}})
	w.follows(f)
	const many = 20_000
	var ids []string
	w.inTx("outbox", func(_ *sql.Tx, publish publish) {
		var messages []*message.Message
		messages, ids = numbered("a", many)
		publish("orders", messages...)
	})
	small, more := numbered("b", 50)
	for _, m := range small {
		w.publish("orders", m)
	}
	w.eventually(func() bool { return b.has(ids[len(ids)-1]) && b.has(more...) }, "all are published")
	require.Equal(t, ids, b.ids("a"))
	require.Equal(t, more, b.ids("b"))
	w.eventually(func() bool { return w.Count(t, "SELECT COUNT(*) FROM postbox_messages") == 0 }, "all rows are removed")
	w.follows(f)
	f.stop(t)
}

// A large message, and one that has to wait, keep later messages of their keys back.
// Also covers G2.
func TestTail_G3_of_messages_that_are_left_to_polling(t *testing.T) {
	t.Parallel()
	w, b := newWorld(t), &broker{}
	var failed bool
	b.fail = func(m *message.Message) error {
		if m.UUID == "poison" && !failed {
			failed = true
			return errBroker
		}
		return nil
	}
	f := w.start(b, forwarder.Config{Tail: w.tail()})
	w.follows(f)
	large := keyed("large", "a")
	large.Payload = make([]byte, 1<<20)
	w.publish("orders", keyed("1", "a"))
	w.publish("orders", large, keyed("2", "a"))
	w.publish("orders", keyed("poison", "b"))
	rest, ids := numbered("b", 20)
	for _, m := range rest {
		w.publish("orders", m)
	}
	w.eventually(func() bool { return b.has("1", "large", "2", "poison") && b.has(ids...) }, "all are published")
	require.Equal(t, []string{"1", "large", "2"}, b.ids("a"))
	require.Equal(t, append([]string{"poison"}, ids...), b.ids("b"))
	f.stop(t)
}

// Outboxes of one database share the slot.
func TestTail_brings_the_messages_of_several_outboxes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	follower := w.tail()
	first, second := &broker{}, &broker{}
	one := w.start(first, forwarder.Config{Tail: follower, Tuning: postbox.Tuning{PollMin: time.Hour}}) // otherwise polls may find all of them
	two := w.start(second, forwarder.Config{Tail: follower, Tuning: postbox.Tuning{PollMin: time.Hour}, Outbox: "second"})
	w.follows(one, two)
	w.done()
	w.takes(func(m *message.Message) {
		w.inTx("second", func(_ *sql.Tx, publish publish) { publish("warm-up", m) })
	})
	w.done()
	before := w.recorder.value(instruments.LogTaken)
	messages, ids := numbered("a", 60)
	for i, m := range messages {
		w.inTx([]string{"outbox", "second"}[i%2], func(_ *sql.Tx, publish publish) { publish("orders", m) })
	}
	w.eventually(func() bool { return len(first.ids("a"))+len(second.ids("a")) == 60 }, "all are published")
	for i, id := range ids {
		require.Equal(t, id, [][]string{first.ids("a"), second.ids("a")}[i%2][i/2])
	}
	// The log may tell of the last warm-ups only now.
	w.eventually(func() bool { return int(w.recorder.value(instruments.LogTaken)-before) >= len(ids) }, "the log has told of all of them")
	require.Equal(t, 1, w.slots())
	one.stop(t)
	require.Equal(t, 1, w.slots(), "the other one still reads")
	two.stop(t)
	w.eventually(func() bool { return w.slots() == 0 }, "no forwarder reads")
}
