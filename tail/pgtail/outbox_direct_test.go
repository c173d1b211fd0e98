package pgtail_test

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/metrics"
)

// reading starts a forwarder, and waits until it reads messages from the log: later ones need no row.
func (w *world) reading(broker message.Publisher) *running {
	w.Helper()
	f := w.reader(broker)
	w.eventually(func() bool {
		return f.log.count("reads messages from the log") == 1 && w.Count(w.T, "SELECT COUNT(*) FROM postbox_spools") == 1
	}, "the log is read, and operators know the outbox")
	return f
}

// stored returns how many messages have ever had a row.
func (w *world) stored() int {
	return w.Count(w.T, "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM postbox_messages_id_seq")
}

// Also covers G1.
func TestOutbox_G3_publishes_without_a_row(t *testing.T) {
	t.Parallel()
	w, b := newOutboxWorld(t), &broker{}
	f := w.reading(b)
	tx, err := w.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, w.emitter("outbox").Bind(tx).Publish("orders", keyed("undone", "key")))
	require.NoError(t, tx.Rollback())
	large := keyed("large", "key")
	large.Payload = []byte(strings.Repeat("x", 6<<20)) // more than is stored together
	w.emit(keyed("first", "key"), large, keyed("other", "another"), message.NewMessage("without", nil))
	w.emit(keyed("last", "key"))

	w.eventually(func() bool { return w.recorder.value(metrics.LogTaken) == 5 }, "all are published, and the position is stored")
	require.Equal(t, []string{"first", "large", "last"}, b.ids("key"))
	require.True(t, b.has("other", "without"))
	require.Len(t, b.first("large").Payload, 6<<20)
	require.InDelta(t, 5, w.recorder.value(metrics.Ended), 0)
	f.stop(t)
	again := w.reading(b)
	w.emit(keyed("again", "key"))
	w.eventually(func() bool { return b.has("again") }, "the next process goes on")
	require.Equal(t, []string{"first", "large", "last", "again"}, b.ids("key"), "nothing is published twice")
	require.Zero(t, w.stored())
	again.stop(t)
}

// The position cannot be stored after the broker has acknowledged a message, as if the process were killed in between.
func TestOutbox_G2_publishes_again_what_was_published_and_not_confirmed(t *testing.T) {
	t.Parallel()
	w, b := newOutboxWorld(t), &broker{}
	f := w.reading(b)
	w.settled(b)
	w.Exec(t, "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'trouble'; END $$")
	w.Exec(t, "CREATE TRIGGER refuse BEFORE UPDATE OF position ON postbox_log_position FOR EACH ROW EXECUTE FUNCTION refuse()")
	w.emit(keyed("first", "key"), keyed("second", "key"))
	w.eventually(func() bool { return f.log.count("trouble") > 0 }, "the position cannot be stored")
	require.Equal(t, []string{"first", "second"}, b.ids("key"))
	w.Exec(t, "DROP TRIGGER refuse ON postbox_log_position")
	w.emit(keyed("third", "key"))
	w.eventually(func() bool { return b.has("third") }, "it goes on")
	require.Equal(t, []string{"first", "second", "first", "second", "third"}, b.ids("key"))
	require.Positive(t, w.stored(), "what was in the log before is stored first, since it may have ended the process")
	f.stop(t)
}

// The connection to the log ends while a message is published.
func TestOutbox_a_session_that_ends_stores_what_it_has_published(t *testing.T) {
	t.Parallel()
	w, b := newOutboxWorld(t), &broker{}
	b.fail = func(m *message.Message) error {
		if m.UUID == "first" {
			w.cutOutbox()
		}
		return nil
	}
	f := w.reading(b)
	w.emit(keyed("first", "key"), keyed("second", "key"))
	w.eventually(func() bool { return f.log.count("reads messages from the log") == 2 }, "it reads again")
	w.emit(keyed("third", "key"))
	w.eventually(func() bool { return b.has("third") }, "it goes on")
	require.Equal(t, []string{"first", "second", "third"}, b.ids("key"), "each once, and in order")
	f.stop(t)
}

// A process whose slot another one has taken stores nothing any more.
// Also covers G2 and G6.
func TestOutbox_G3_while_the_reader_that_is_replaced_still_publishes(t *testing.T) {
	t.Parallel()
	w, b := newOutboxWorld(t), &broker{}
	released, calls := make(chan struct{}), atomic.Int32{}
	release := sync.OnceFunc(func() { close(released) })
	defer release()
	slow := publisherFunc(func(topic string, messages ...*message.Message) error {
		if calls.Add(1) == 1 {
			<-released
		}
		return b.Publish(topic, messages...)
	})
	one := w.reading(slow)
	second := w.reader(b)
	w.eventually(func() bool { return second.log.count("stands by") == 1 }, "the second one stands by")
	w.emit(keyed("one", "key"), keyed("two", "key"))
	w.eventually(func() bool { return calls.Load() == 1 }, "the first one publishes")
	w.cutOutbox()
	w.eventually(func() bool { return second.log.count("reads messages from the log") == 1 }, "the second one takes over")
	release()
	w.emit(keyed("three", "key"))
	w.eventually(func() bool { return b.has("three") && w.rows() == 0 }, "it goes on")
	require.Equal(t, []string{"one", "two", "three"}, first(b.ids("key")), "in order")
	require.GreaterOrEqual(t, b.counted("one"), 2, "the second one cannot know what the first one has published")
	w.eventually(func() bool { return one.log.count("stands by") == 1 }, "the first one stands by")
	one.stop(t)
	second.stop(t)
}

type publisherFunc func(topic string, messages ...*message.Message) error

func (f publisherFunc) Publish(topic string, messages ...*message.Message) error {
	return f(topic, messages...)
}

func (publisherFunc) Close() error { return nil }

// Messages of some keys fail at first, so they get rows, in lanes whose number changes. The others need no row. Also covers G1.
func TestOutbox_G3_while_the_number_of_lanes_changes(t *testing.T) {
	t.Parallel()
	w, b := newOutboxWorld(t), &broker{}
	failed := sync.Map{}
	b.fail = func(m *message.Message) error {
		if _, again := failed.LoadOrStore(m.UUID, true); !again && strings.HasPrefix(m.UUID, "a") {
			return errors.New("not now")
		}
		return nil
	}
	one, two := w.reading(b), w.reader(b)
	operator, err := admin.New(w.Postbox(), admin.Config{}, nil)
	require.NoError(t, err)
	var want [2][]string
	publish := func() {
		for i, key := range []string{"a", "b"} {
			id := fmt.Sprintf("%s%03d", key, len(want[i]))
			want[i] = append(want[i], id)
			w.emit(keyed(id, key))
		}
	}
	w.eventually(func() bool { _, err := operator.LaneHolders(t.Context(), admin.Outbox("outbox")); return err == nil }, "a forwarder has registered the outbox")
	for _, lanes := range []int{1, 16, 3} {
		changed := make(chan error, 1)
		go func() { changed <- w.setLanes(lanes) }()
		for done := false; !done; {
			publish()
			select {
			case err := <-changed:
				require.NoError(t, err)
				done = true
			default:
			}
		}
		publish()
	}
	w.eventually(func() bool { return b.has(want[0]...) && b.has(want[1]...) && w.rows() == 0 }, "all are published")
	require.Equal(t, want[0], b.ids("a"))
	require.Equal(t, want[1], b.ids("b"))
	require.Less(t, w.stored(), len(want[0])+len(want[1]), "some needed no row")
	one.stop(t)
	two.stop(t)
}

// A message whose key has a row gets a row, too. Other keys need none.
func TestOutbox_G3_a_failing_message_holds_back_only_its_key(t *testing.T) {
	t.Parallel()
	w, b := newOutboxWorld(t), &broker{}
	broken := atomic.Bool{}
	broken.Store(true)
	b.fail = func(m *message.Message) error {
		switch {
		case m.UUID == "poison":
			return postbox.Permanent(errBroker)
		case m.UUID == "head" && broken.Load():
			return postbox.RetryAfter(errBroker, time.Hour)
		}
		return nil
	}
	f := w.reading(b)
	w.inTx("outbox", func(tx *sql.Tx, _ publish) {
		emitter := w.emitter("outbox").Bind(tx)
		require.NoError(t, emitter.Publish("orders", keyed("poison", "poisoned"), keyed("after", "poisoned"), keyed("head", "stuck"), keyed("behind", "stuck")))
		// The failures may open the circuit of their topic for a moment, and then all messages of that topic get rows.
		require.NoError(t, emitter.Publish("invoices", keyed("free-1", "free")))
	})
	w.eventually(func() bool {
		return b.has("after", "free-1") && w.Count(t, "SELECT COUNT(*) FROM postbox_dead_letters") == 1 && w.Count(t, "SELECT COUNT(*) FROM postbox_waiting") == 1
	}, "one becomes a dead letter, and one waits")
	require.Equal(t, 4, w.stored())
	w.eventually(func() bool { return w.rows() == 2 }, "the key of the dead letter has no row any more")
	w.inTx("outbox", func(tx *sql.Tx, _ publish) {
		emitter := w.emitter("outbox").Bind(tx)
		require.NoError(t, emitter.Publish("orders", keyed("later", "stuck")))
		require.NoError(t, emitter.Publish("invoices", keyed("free-2", "free"), keyed("cured", "poisoned")))
	})
	w.eventually(func() bool { return b.has("free-2", "cured") && w.rows() == 3 }, "other keys go on")
	require.Empty(t, b.ids("stuck"))
	require.Equal(t, 5, w.stored(), "only the key that waits gets another row")
	broken.Store(false)
	operator, err := admin.New(w.Postbox(), admin.Config{}, nil)
	require.NoError(t, err)
	head := int64(w.Count(t, "SELECT id FROM postbox_waiting"))
	require.NoError(t, operator.RunNow(t.Context(), admin.Outbox("outbox"), head))
	w.eventually(func() bool { return w.rows() == 0 }, "the key goes on")
	require.Equal(t, []string{"head", "behind", "later"}, b.ids("stuck"))
	f.stop(t)
}

// A ready row is published before later messages of its key, also if that takes long.
func TestOutbox_G3_a_row_that_is_being_published_holds_back_its_key(t *testing.T) {
	t.Parallel()
	w, b := newOutboxWorld(t), &broker{}
	released := make(chan struct{})
	release := sync.OnceFunc(func() { close(released) })
	defer release()
	calls := atomic.Int32{}
	slow := publisherFunc(func(topic string, messages ...*message.Message) error {
		if messages[0].UUID == "row" {
			calls.Add(1)
			<-released
		}
		return b.Publish(topic, messages...)
	})
	f := w.reading(slow)
	w.publish("orders", keyed("row", "key"))
	w.eventually(func() bool { return calls.Load() == 1 }, "the row is being published")
	w.emit(keyed("log", "key"), keyed("other", "another"))
	w.eventually(func() bool { return b.has("other") && w.rows() == 2 }, "the message of its key gets a row")
	require.Empty(t, b.ids("key"))
	release()
	w.eventually(func() bool { return w.rows() == 0 }, "both are published")
	require.Equal(t, []string{"row", "log"}, b.ids("key"))
	f.stop(t)
}

func TestOutbox_stores_what_operators_or_limits_hold_back(t *testing.T) {
	t.Parallel()
	w, b := newOutboxWorld(t), &broker{}
	f := w.reading(b)
	operator, err := admin.New(w.Postbox(), admin.Config{}, nil)
	require.NoError(t, err)
	target := admin.Outbox("outbox")
	rows := 0
	held := func(what, id string) {
		t.Helper()
		w.emit(keyed(id, id))
		rows++
		w.eventually(func() bool { return w.stored() == rows }, what)
	}
	require.NoError(t, operator.PauseTopic(t.Context(), target, "orders"))
	held("the topic is paused", "topic")
	require.NoError(t, w.emitter("outbox").Publish("others", keyed("elsewhere", "elsewhere")))
	w.eventually(func() bool { return b.has("elsewhere") }, "another topic is not paused")
	require.False(t, b.has("topic"))
	w.inTx("outbox", func(tx *sql.Tx, _ func(topic string, messages ...*message.Message)) {
		bound := w.emitter("outbox").Bind(tx)
		require.NoError(t, bound.Publish("orders", keyed("before", "both")))
		require.NoError(t, bound.Publish("others", keyed("behind", "both")))
	})
	rows += 2
	w.eventually(func() bool { return w.stored() == rows }, "the later one of the key gets a row, too")
	require.NoError(t, operator.ResumeTopic(t.Context(), target, "orders"))
	require.NoError(t, operator.PauseKey(t.Context(), target, "some"))
	held("a key is paused", "key")
	require.NoError(t, operator.ResumeKey(t.Context(), target, "some"))
	require.NoError(t, operator.Pause(t.Context(), target))
	held("the outbox is paused", "outbox")
	require.False(t, b.has("outbox"))
	require.NoError(t, operator.Resume(t.Context(), target))
	require.NoError(t, operator.SetSettings(t.Context(), target, admin.Settings{PerSecond: 1000}))
	held("there is a limit", "limit")
	require.NoError(t, operator.SetSettings(t.Context(), target, admin.Settings{}))
	w.eventually(func() bool { return b.has("topic", "before", "behind", "key", "outbox", "limit") && w.rows() == 0 }, "all are published")
	w.emit(keyed("free", "free"))
	w.eventually(func() bool { return b.has("free") }, "nothing holds it back")
	require.Equal(t, rows, w.stored())
	f.stop(t)
}
