package pgtail_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/internal/tail"
)

// speaks waits until the process that reads from a slot has told the server again and again that it lives. The server ends a connection that is silent for as long as
// a statement may take.
func (w *world) speaks(slot string) {
	w.Helper()
	said := func() int {
		return w.Count(w.T, `SELECT COALESCE(MAX(extract(epoch FROM r.reply_time) * 1000000), 0)::bigint
			FROM pg_stat_replication r JOIN pg_replication_slots s ON s.active_pid = r.pid WHERE s.slot_name = `+slot)
	}
	for range 2 {
		before := said()
		w.eventually(func() bool { return said() > before }, "it tells that it lives")
	}
}

// A reader looks at its publication before it takes messages that follow a change of it. Its pool has no connection for that.
func TestTail_is_not_silent_while_it_looks_at_its_publication(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish("orders", message.NewMessage("registers the outbox", nil))
	pool := w.Open(t)
	pool.SetMaxOpenConns(1)
	follower := w.tail()
	follower.LookForRetained(time.Hour)
	feed := w.feed(follower, tail.Outbox{Name: "outbox", DB: pool})
	held, err := pool.Conn(t.Context())
	require.NoError(t, err)
	before := pool.Stats().WaitCount
	w.Exec(t, "ALTER PUBLICATION "+w.publication()+" SET (publish = 'insert')")
	m := message.NewMessage("follows the change", nil)
	w.publish("orders", m)
	w.eventually(func() bool { return pool.Stats().WaitCount > before }, "it looks")
	w.speaks(slotName)
	require.NoError(t, held.Close())
	w.eventually(func() bool {
		messages, _, _ := feed.Take()
		return len(messages) > 0 && messages[len(messages)-1].MessageID == m.UUID
	}, "it goes on")
}

// Another process holds the row with the position for long, as one does whose transaction hangs.
func TestOutbox_is_not_silent_while_it_claims_the_log(t *testing.T) {
	t.Parallel()
	w, b := newOutboxWorld(t), &broker{}
	tx, err := w.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	var holder int
	require.NoError(t, tx.QueryRowContext(t.Context(), "SELECT pg_backend_pid() FROM postbox_log_position FOR UPDATE").Scan(&holder))
	f := w.reader(b)
	w.eventually(func() bool {
		return w.waitsForPosition(holder) && w.Count(t, "SELECT COUNT(*) FROM pg_replication_slots WHERE active AND slot_name = "+permanentSlot) > 0
	}, "it reads from the slot, and waits for the row")
	w.cutOutbox()
	w.eventually(func() bool { return f.log.count("cannot read messages from the log") == 1 }, "it notices that its connection is lost")
	require.Zero(t, f.log.count("canceling statement"), "it tells why, and not what it cancelled then")
	w.speaks(permanentSlot)
	require.Zero(t, f.log.count("reads messages from the log"))
	require.NoError(t, tx.Rollback())
	w.emit(keyed("one", "key"))
	w.eventually(func() bool { return b.has("one") }, "it goes on")
	f.stop(t)
}
