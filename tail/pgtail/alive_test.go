package pgtail_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/internal/tail"
)

// speaks waits until the process that reads from a slot has told the server again and again that it
// lives. The server ends a connection that is silent for as long as a statement may take.
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

// A reader looks at its publication before it takes messages that follow a change of it. Its pool
// has no connection for that.
func TestTail_is_not_silent_while_it_looks_at_its_publication(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish("orders", message.NewMessage("registers the outbox", nil))
	pool := w.Open(t)
	pool.SetMaxOpenConns(1)
	follower := w.tail()
	follower.LookForRetained(time.Hour)
	feed := w.feed(follower, tail.Outbox{DB: pool})
	held, err := pool.Conn(t.Context())
	require.NoError(t, err)
	before := pool.Stats().WaitCount
	w.Exec(t, "ALTER PUBLICATION "+w.publication()+" SET (publish = 'insert')")
	w.publish("orders", message.NewMessage("follows the change", nil))
	w.eventually(func() bool { return pool.Stats().WaitCount > before }, "it looks")
	w.speaks(slotName)
	require.NoError(t, held.Close())
	w.eventually(func() bool {
		_, messages := feed.News()
		return messages > 0
	}, "it goes on")
}
