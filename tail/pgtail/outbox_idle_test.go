package pgtail_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/delay"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/tail"
	"github.com/postbox-go/watermill-postbox/tail/pgtail"
)

// A forwarder that reads messages of the log, and has no rows, hears at once of rows, of a message that is due before its next look, and of what an
// operator does.
func TestOutbox_an_idle_forwarder_hears_of_changes(t *testing.T) {
	t.Parallel()
	w, b := newOutboxWorld(t), &broker{}
	w.skipSetUp()
	f := w.reader(b, func(c *forwarder.Config) { c.Lease, c.PollMax = time.Hour, 50*time.Millisecond }) // it polls each 50 ms, or looks each 10 s
	w.settled(b)
	w.readsRarely()
	w.emit(keyed("without a row", "a"))
	w.eventually(func() bool { return b.has("without a row") }, "it is published")
	w.publishUnheard(keyed("row", "a"))
	w.eventually(func() bool { return b.has("row") }, "a row of a publisher without Log is told")
	w.readsRarely()
	soon, later := keyed("soon", "a"), keyed("later", "b")
	delay.Message(soon, delay.For(time.Second))
	delay.Message(later, delay.For(time.Hour))
	w.emit(soon, later)
	w.eventually(func() bool { return b.has("soon") }, "it is due")

	// One that stands by polls, and rests once it reads.
	other := w.reader(b, func(c *forwarder.Config) { c.Lease, c.PollMax = time.Hour, 50*time.Millisecond })
	w.eventually(func() bool {
		return w.Count(t, "SELECT COUNT(DISTINCT holder) FROM postbox_lanes WHERE holder IS NOT NULL") == 2
	}, "they share the lanes")
	f.stop(t)
	w.eventually(func() bool { return other.log.count("reads messages from the log") == 1 }, "the other one takes over")
	w.readsRarely()
	w.publishUnheard(keyed("after", "a"))
	w.eventually(func() bool { return b.has("after") }, "it hears of a row")
	w.readsRarely()
	operator, err := admin.New(w.Postbox(), admin.Config{}, nil)
	require.NoError(t, err)
	require.NoError(t, operator.RunNow(t.Context(), admin.Outbox("outbox"), int64(w.Count(t, "SELECT id FROM postbox_waiting"))))
	w.eventually(func() bool { return b.has("later") }, "an operator wants it now")
	require.Equal(t, []string{"without a row", "row", "soon", "after"}, b.ids("a"))
	other.stop(t)
}

// skipSetUp lets the log begin after the action of the set-up. After an action a forwarder without work looks more often for a minute.
func (w *world) skipSetUp() {
	w.Helper()
	w.Exec(w.T, "SELECT pg_replication_slot_advance("+permanentSlot+", pg_current_wal_lsn())")
	w.Exec(w.T, "UPDATE postbox_log_position SET position = (SELECT pg_wal_lsn_diff(confirmed_flush_lsn, '0/0') FROM pg_replication_slots WHERE slot_name = "+permanentSlot+")")
}

// The publication of an earlier version has no table. Its forwarders poll as they did, until SetupOutbox is run again. They do so, too, when the publication does not tell
// of each change any more.
func TestOutbox_polls_unless_its_publication_is_complete(t *testing.T) {
	t.Parallel()
	w := newOutboxWorld(t)
	name := w.permanentSlot()
	w.Exec(t, "ALTER PUBLICATION "+name+" DROP TABLE ONLY postbox_messages, ONLY postbox_waiting, ONLY postbox_audit, ONLY postbox_members")
	says := func() (text string) {
		status, err := pgtail.InspectOutbox(t.Context(), w.Postbox(), w.outboxConfig())
		require.NoError(t, err)
		for _, f := range about(status, pgtail.AboutPublication) {
			if text += f.What; strings.Contains(f.What, "lacks the tables") {
				require.False(t, f.Problem)
			}
		}
		return text
	}
	require.Contains(t, says(), "lacks the tables messages, waiting, audit, members")

	tells := w.tells()
	require.False(t, tells(), "the publication is empty")
	mend := func() {
		for range 2 { // it can be run again
			require.NoError(t, pgtail.SetupOutbox(t.Context(), w.Postbox(), w.outboxConfig()))
		}
		require.Empty(t, says())
		w.eventually(tells, "it tells each change")
	}
	mend()
	for _, spoilt := range []struct{ by, says string }{
		{"DROP TABLE ONLY postbox_messages", "lacks the tables messages"},
		{"DROP TABLE ONLY postbox_audit, ONLY postbox_waiting", "lacks the tables waiting, audit"},
		{"SET (publish = 'insert, update')", "inserts alone"},
	} {
		w.Exec(t, "ALTER PUBLICATION "+name+" "+spoilt.by)
		w.eventually(func() bool { return !tells() }, spoilt.by)
		require.Contains(t, says(), spoilt.says)
		mend()
	}
}

// tells reads the log with an Outbox, and returns whether it tells each change.
func (w *world) tells() func() bool {
	w.Helper()
	statements, err := spool.StatementsIn(w.Postbox())
	require.NoError(w, err)
	reader, feed := w.outboxTail(), tail.NewFeed(tail.Limits{})
	reader.LookForRetained(20 * time.Millisecond)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- reader.Follow(ctx, tail.Outbox{Name: "outbox", DB: w.DB, Statements: statements, Feed: feed, Logger: watermill.NopLogger{}})
	}()
	w.Cleanup(func() {
		cancel()
		require.NoError(w, <-ended)
	})
	w.eventually(func() bool { return !feed.Heard().IsZero() }, "the log is read")
	return func() bool {
		_, tells := feed.Tells(time.Now())
		return tells
	}
}
