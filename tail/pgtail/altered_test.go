package pgtail_test

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/instruments"
	"github.com/postbox-go/watermill-postbox/internal/tail"
	"github.com/postbox-go/watermill-postbox/tail/pgtail"
)

// A message that was committed while the log did not have it is published before the next one of
// its key, which the log has. The publication has another table, and so lasts.
func TestTail_G3_notices_that_the_publication_was_altered(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(w *world) (back func()){
		"removed": func(w *world) func() {
			require.NoError(w, pgtail.Remove(w.Context(), w.Postbox(), w.publication()))
			return func() { require.NoError(w, pgtail.Setup(w.Context(), w.Postbox(), w.publication())) }
		},
		"without inserts": func(w *world) func() {
			w.Exec(w.T, "ALTER PUBLICATION "+w.publication()+" SET (publish = 'delete')")
			return func() { w.Exec(w.T, "ALTER PUBLICATION "+w.publication()+" SET (publish = 'insert')") }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, b := newWorld(t), &broker{}
			w.Exec(t, "CREATE TABLE other (n integer)")
			w.Exec(t, "ALTER PUBLICATION "+w.publication()+" ADD TABLE other")
			follower := w.tail()
			follower.LookForRetained(time.Hour)
			f := w.start(b, forwarder.Config{Tail: follower})
			w.follows(f)
			w.readsRarely()
			back := change(w)
			w.publishUnheard(keyed("1", "a"))
			back()
			w.publishUnheard(keyed("2", "a"))
			w.eventually(func() bool { return b.has("2") }, "the log goes on")
			require.Equal(t, []string{"1", "2"}, b.ids("a"))
			w.follows(f)
			f.stop(t)
			w.Exec(t, "DROP TABLE other")
		})
	}
}

// readsRarely waits until the forwarder polls so rarely that it finds no message by chance.
func (w *world) readsRarely() {
	w.Helper()
	reads, since := w.recorder.value(instruments.Reads), time.Now()
	w.eventually(func() bool {
		if now := w.recorder.value(instruments.Reads); now != reads {
			reads, since = now, time.Now()
		}
		return time.Since(since) > 500*time.Millisecond
	}, "the forwarder does not poll any more")
}

// publishUnheard stores a message as another process does: no forwarder of this one is woken.
func (w *world) publishUnheard(m *message.Message) {
	w.Helper()
	db := w.Postbox()
	require.NoError(w, w.DB.QueryRowContext(w.Context(), "SELECT current_schema()").Scan(&db.Schema))
	publisher, err := forwarder.NewPublisher(db, forwarder.PublisherConfig{}, nil)
	require.NoError(w, err)
	require.NoError(w, postbox.InTx(w.Context(), w.DB, func(ctx context.Context, _ *sql.Tx) error {
		m.SetContext(ctx)
		return publisher.Publish("orders", m)
	}))
}

// A forwarder that would not get all messages from the log stops reading it, and says why.
func TestTail_stops_when_the_publication_lacks_messages(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(w *world)
		says   string
	}{
		"removed": {func(w *world) {
			require.NoError(w, pgtail.Remove(w.Context(), w.Postbox(), w.publication()))
		}, "run pgtail.Setup"},
		"filtered": {func(w *world) {
			const hasFilters = 150000
			if w.Count(w.T, "SELECT current_setting('server_version_num')::int") < hasFilters {
				w.Exec(w.T, "ALTER PUBLICATION "+w.publication()+" SET (publish = 'delete')")
				return
			}
			w.Exec(w.T, "ALTER PUBLICATION "+w.publication()+" SET TABLE ONLY postbox_messages WHERE (id % 2 = 0), other")
		}, "must "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, b := newWorld(t), &broker{}
			w.Exec(t, "CREATE TABLE other (n integer)")
			w.Exec(t, "ALTER PUBLICATION "+w.publication()+" ADD TABLE other")
			follower := w.tail()
			follower.LookForRetained(20 * time.Millisecond)
			f := w.start(b, forwarder.Config{Tail: follower})
			w.follows(f)
			test.change(w)
			w.eventually(func() bool { return f.log.count(test.says) == 1 }, "it says what is missing")
			w.eventually(func() bool { return w.slots() == 0 }, "the slot is gone")
			w.publishUntilSeen(b)
			f.stop(t)
			w.Exec(t, "DROP TABLE other")
		})
	}
}

// A slot that was made by hand has the name that readers need, and keeps log that no process reads.
func TestCheck_names_a_slot_that_no_reader_has_made(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Exec(t, "SELECT pg_create_logical_replication_slot("+slotName+", 'pgoutput')")
	t.Cleanup(func() {
		_, _ = w.DB.Exec("SELECT pg_drop_replication_slot(" + slotName + ")") //nolint:noctx // the test's context is over
	})
	err := pgtail.Check(t.Context(), w.Postbox(), pgtail.Config{DSN: w.DSN, Publication: w.publication()})
	require.ErrorContains(t, err, "pg_drop_replication_slot")

	must := w.start(&broker{}, forwarder.Config{Tail: w.tail(func(c *pgtail.Config) { c.Required = true })})
	require.ErrorContains(t, <-must.ended, "pg_drop_replication_slot")
}

// While the slot is made, no process reads yet, although the slot is active.
func TestInspect_says_that_a_slot_is_being_made(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	open, err := w.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = open.ExecContext(t.Context(), "SELECT txid_current()") // the slot needs the end of each transaction that may write
	require.NoError(t, err)
	f := w.start(&broker{}, forwarder.Config{Tail: w.tail()})
	reader := func() (findings []pgtail.Finding) {
		status, err := pgtail.Inspect(t.Context(), w.Postbox(), pgtail.Config{Publication: w.publication()})
		require.NoError(t, err)
		return slices.DeleteFunc(status.Findings, func(f pgtail.Finding) bool { return f.About != tail.AboutReader })
	}
	w.eventually(func() bool {
		found := reader()
		return len(found) == 1 && !found[0].Problem && strings.Contains(found[0].What, "waits for the end of all open transactions")
	}, "the slot is being made")
	require.NoError(t, open.Rollback())
	w.follows(f)
	require.Empty(t, reader())
	f.stop(t)
}
