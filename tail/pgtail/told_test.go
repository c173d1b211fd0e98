package pgtail_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/instruments"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/tail"
	"github.com/postbox-go/watermill-postbox/tail/pgtail"
)

// feed returns the feed of an outbox while its log is read.
func (w *world) feed(follower *pgtail.Tail, outbox tail.Outbox) *tail.Feed {
	w.Helper()
	statements, err := spool.StatementsIn(w.Postbox())
	require.NoError(w, err)
	feed := tail.NewFeed()
	outbox.Statements, outbox.Feed, outbox.Logger = statements, feed, watermill.NopLogger{}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- follower.Follow(ctx, outbox)
	}()
	w.Cleanup(func() {
		cancel()
		require.NoError(w, <-ended)
	})
	w.eventually(func() bool { return !feed.Heard().IsZero() }, "the log is read")
	feed.Open(int64(w.Count(w.T, "SELECT id FROM postbox_spools WHERE name = 'outbox'")))
	return feed
}

// The log tells of what a forwarder would otherwise find by polling.
func TestTail_tells_of_changes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish("orders", message.NewMessage("registers the outbox", nil))
	w.inTx("second", func(_ *sql.Tx, publish func(topic string, messages ...*message.Message)) {
		publish("orders", message.NewMessage("registers another one", nil))
	})
	feed := w.feed(w.tail(), tail.Outbox{DB: w.DB})
	w.eventually(func() bool { return feed.Tells(time.Now()) }, "it tells each change")
	later := func() *message.Message {
		m := message.NewMessage("later", nil)
		delay.Message(m, delay.For(time.Hour))
		return m
	}
	operator, err := admin.New(w.Postbox(), admin.Config{}, nil)
	require.NoError(t, err)
	for _, change := range []struct {
		what string
		do   func()
	}{
		{"a message that waits", func() { w.publish("orders", later()) }},
		{"an operator who wants it now", func() {
			id := int64(w.Count(t, "SELECT id FROM postbox_waiting"))
			require.NoError(t, errorOf(operator.Reschedule(t.Context(), admin.Filter{Target: admin.Outbox("outbox"), ID: id}, time.Time{})))
		}},
		{"a pause", func() {
			require.NoError(t, operator.Pause(t.Context(), admin.Filter{Target: admin.Outbox("outbox"), All: true}))
		}},
		{"its end", func() {
			require.NoError(t, operator.Resume(t.Context(), admin.Filter{Target: admin.Outbox("outbox"), All: true}))
		}},
		{"a process that joins", func() {
			w.Exec(t, "INSERT INTO postbox_members (spool, holder, in_flight, expires_at) SELECT id, 'two', '', 1 FROM postbox_spools WHERE name = 'outbox'")
		}},
	} {
		_, _ = feed.News()
		change.do()
		w.eventually(func() bool { news, _ := feed.News(); return len(news) > 0 }, change.what)
	}
	feed.Begin() // forgets what was told
	w.inTx("second", func(_ *sql.Tx, publish func(topic string, messages ...*message.Message)) { publish("orders", later()) })
	w.publish("orders", message.NewMessage("comes after it", nil))
	stored := 0
	w.eventually(func() bool {
		_, messages := feed.News()
		stored += messages
		return stored > 0
	}, "a message after the other outbox's")
	first, left := feed.Read(&tail.Snapshot{}, nil, true)
	require.Equal(t, 1, first+left, "what happens in another outbox is not told")
}

// A publication of an earlier version has the messages alone. Its forwarders poll as they did,
// until Setup is run again.
func TestTail_with_a_publication_of_the_messages_alone_polls(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Exec(t, "DROP PUBLICATION "+w.publication())
	w.Exec(t, "CREATE PUBLICATION "+w.publication()+" FOR TABLE ONLY postbox_messages WITH (publish = 'insert')")
	w.publish("orders", message.NewMessage("registers the outbox", nil))
	follower := w.tail()
	follower.LookForRetained(20 * time.Millisecond)
	feed := w.feed(follower, tail.Outbox{DB: w.DB})
	require.False(t, feed.Tells(time.Now()))
	require.NoError(t, pgtail.Setup(t.Context(), w.Postbox(), w.publication()))
	w.eventually(func() bool { return feed.Tells(time.Now()) }, "it tells each change")
	require.NoError(t, pgtail.Setup(t.Context(), w.Postbox(), w.publication()), "it can be run again")
}

// A forwarder that has become idle hears at once of what an operator does, and of a message that is
// due before its next look.
func TestTail_an_idle_forwarder_hears_of_changes(t *testing.T) {
	t.Parallel()
	w, b := newWorld(t), &broker{}
	f := w.start(b, forwarder.Config{Tail: w.tail(), Tuning: postbox.Tuning{Lease: time.Hour, PollMax: 50 * time.Millisecond}}) // it polls each 50 ms, or looks each 10 s
	w.follows(f)
	w.readsRarely()
	soon, later := keyed("soon", "a"), keyed("later", "b")
	delay.Message(soon, delay.For(time.Second))
	delay.Message(later, delay.For(time.Hour))
	w.publish("orders", soon, later)
	w.eventually(func() bool { return b.has("soon") }, "it is due")
	w.readsRarely()
	operator, err := admin.New(w.Postbox(), admin.Config{}, nil)
	require.NoError(t, err)
	id := int64(w.Count(t, "SELECT id FROM postbox_waiting"))
	reads := w.recorder.value(instruments.Reads)
	require.NoError(t, errorOf(operator.Reschedule(t.Context(), admin.Filter{Target: admin.Outbox("outbox"), ID: id}, time.Time{})))
	w.eventually(func() bool { return b.has("later") }, "an operator wants it now")
	require.Greater(t, w.recorder.value(instruments.Reads), reads)

	// One that takes over has all lanes as soon as the first one has given them back.
	other := w.start(b, forwarder.Config{Tail: w.tail(), Tuning: postbox.Tuning{Lease: time.Hour, PollMax: 50 * time.Millisecond}})
	w.eventually(func() bool {
		return w.Count(t, "SELECT COUNT(DISTINCT holder) FROM postbox_lanes WHERE holder IS NOT NULL") == 2
	}, "they share the lanes")
	f.stop(t)
	w.publish("orders", keyed("after", "a"))
	w.eventually(func() bool { return b.has("after") }, "the other one takes over")
	require.Equal(t, []string{"soon", "after"}, b.ids("a"))
	other.stop(t)
}

// A later version may add a column or hold a lock for a while. An idle forwarder waits for it and
// goes on.
func TestTail_an_idle_forwarder_outlasts_a_migration(t *testing.T) {
	t.Parallel()
	w, b := newWorld(t), &broker{}
	f := w.start(b, forwarder.Config{Tail: w.tail(), Tuning: postbox.Tuning{Lease: 6 * time.Second, PollMax: 50 * time.Millisecond}}) // it looks each 4 s
	w.follows(f)
	w.readsRarely()
	require.NoError(t, postbox.Migrate(t.Context(), w.Postbox()))
	tx, err := w.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	_, err = tx.ExecContext(t.Context(), "LOCK TABLE postbox_messages, postbox_waiting IN ACCESS EXCLUSIVE MODE")
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), "ALTER TABLE postbox_messages ADD COLUMN later integer NOT NULL DEFAULT 0")
	require.NoError(t, err)
	w.eventually(func() bool {
		return w.Count(t, "SELECT COUNT(*) FROM pg_locks WHERE NOT granted AND relation = 'postbox_messages'::regclass") > 0
	}, "a look waits for the lock")
	require.NoError(t, tx.Commit())
	messages, ids := numbered("a", 3)
	w.publish("orders", messages...)
	w.eventually(func() bool { return b.has(ids...) }, "it goes on")
	require.Equal(t, ids, b.ids("a"))
	require.Zero(t, f.log.count("lost lanes"))
	f.stop(t)
}

// An action on many messages has several transactions, of which the log tells the first.
func TestTail_an_idle_forwarder_notices_all_of_an_action_on_many_messages(t *testing.T) {
	t.Parallel()
	w, b := newWorld(t), &broker{}
	f := w.start(b, forwarder.Config{Tail: w.tail(), Tuning: postbox.Tuning{Lease: time.Hour, PollMax: 50 * time.Millisecond}})
	w.follows(f)
	const many = 1200 // more than a page
	messages, ids := numbered("a", many)
	for _, m := range messages {
		delay.Message(m, delay.For(time.Hour))
	}
	w.publish("orders", messages...)
	w.readsRarely()
	operator, err := admin.New(w.Postbox(), admin.Config{}, nil)
	require.NoError(t, err)
	published := func() int {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.got)
	}
	did, err := operator.Reschedule(t.Context(), admin.Filter{All: true, Target: admin.Outbox("outbox")}, time.Time{}, func(p admin.Progress) {
		w.eventually(func() bool { return published() == p.Done }, "a page is found before the next one is changed")
	})
	require.NoError(t, err)
	require.Equal(t, many, did)
	w.eventually(func() bool { return b.has(ids...) }, "all are published")
	f.stop(t)
}
