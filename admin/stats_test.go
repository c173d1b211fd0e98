package admin_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

func (b *bench) stats() map[string]admin.TopicStats {
	b.Helper()
	list, err := b.admin.Stats(b.Context(), b.target)
	require.NoError(b, err)
	stats := map[string]admin.TopicStats{}
	for _, s := range list {
		stats[s.Topic] = s
	}
	require.Len(b, stats, len(list), "each topic comes once")
	return stats
}

func TestStats_of_an_empty_outbox(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.outboxID()
		require.Empty(t, b.stats())
	})
}

func TestStats_G9_count_by_topic(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		later := draft("later", "orders", "")
		later.Delay = time.Hour
		b.append(draft("1", "orders", ""), draft("2", "orders", ""), draft("3", "refunds", ""), later)
		other := spool.New(b.statements, "other outbox")
		require.NoError(t, other.Append(t.Context(), database.DB, spool.Run, []spool.Draft{draft("4", "orders", "")}))
		b.buryInbox("5", 0)
		b.buryInbox("6", b.outboxID())
		b.exec(database.Bind("UPDATE postbox_messages SET created_at = created_at - ? WHERE topic = ?"), time.Hour.Microseconds(), "orders")
		b.exec(database.Bind("UPDATE postbox_messages SET attempts = 1, state = 2, available_at = available_at + ? WHERE message_id = ?"),
			time.Hour.Microseconds(), []byte("2"))
		database.MoveWaiting(t)

		stats := b.stats()
		orders, refunds := stats["orders"], stats["refunds"]
		require.InDelta(t, time.Hour, orders.OldestAge, float64(10*time.Minute))
		require.Less(t, refunds.OldestAge, 10*time.Minute)
		orders.OldestAge, refunds.OldestAge = 0, 0
		require.Equal(t, admin.TopicStats{Topic: "orders", Pending: 3, Due: 1, Failing: 1, DeadInbox: 2}, orders)
		require.Equal(t, admin.TopicStats{Topic: "refunds", Pending: 1, Due: 1}, refunds)

		b.exec("DELETE FROM postbox_messages WHERE topic = 'orders'")
		b.bury()
		require.Equal(t, admin.TopicStats{Topic: "refunds", Dead: 1}, b.stats()["refunds"])
		for _, letter := range b.list(admin.Filter{}) {
			require.NoError(t, errorOf(b.admin.Resolve(t.Context(), admin.Filter{ID: letter.ID}, "seen")))
		}
		require.Empty(t, b.stats(), "resolved letters need nobody's attention")
	})
}

func TestStats_counts_messages_in_flight_as_of_the_last_heartbeat(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.append(draft("1", "orders", "a"), draft("2", "orders", "b"), draft("3", "refunds", "c"))
		var entered atomic.Int32
		proceed := make(chan struct{})
		_, stop := b.drain(func(*spool.Message) error {
			entered.Add(1)
			<-proceed
			return nil
		})
		b.eventually(func() bool { return entered.Load() == 3 }, "all are being handled")
		b.eventually(func() bool {
			stats := b.stats()
			return stats["orders"].InFlight == 2 && stats["refunds"].InFlight == 1
		}, "a heartbeat tells")
		require.Equal(t, 2, b.stats()["orders"].Pending)

		// After two heartbeats it also tells which call has not returned for longest.
		var call *admin.Call
		b.eventually(func() bool {
			queues, err := b.admin.Queues(t.Context())
			require.NoError(t, err)
			call = queues[0].LongCall
			return call != nil
		}, "a heartbeat tells of a call that takes long")
		require.Contains(t, []string{"1", "2", "3"}, call.MessageID)
		require.NotZero(t, call.ID)
		require.WithinDuration(t, time.Now(), call.Since, time.Minute)
		_, members, err := b.admin.Lanes(t.Context(), b.target)
		require.NoError(t, err)
		require.Equal(t, call.Process, members[0].Name)
		require.Equal(t, call.ID, members[0].LongCall.ID)

		// A process that died long ago tells nothing.
		b.join("dead", `{"orders":100}`, -1)
		require.Equal(t, 2, b.stats()["orders"].InFlight)
		close(proceed)
		b.eventually(func() bool { return b.pending() == 0 }, "all are handled")
		stop()
		require.Empty(t, b.stats())
	})
}

// A message that was handled after the heartbeat is no longer pending, and so cannot be in flight.
func TestStats_never_count_more_in_flight_than_are_pending(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.append(draft("1", "orders", "a"), draft("2", "orders", "b"), draft("3", "refunds", "c"))
		b.join("first", `{"orders":100,"gone":7}`, time.Hour.Microseconds())
		b.join("second", `{"orders":100,"refunds":1}`, time.Hour.Microseconds())
		inFlight := func() int {
			queues, err := b.admin.Queues(t.Context())
			require.NoError(t, err)
			require.Len(t, queues, 1)
			return queues[0].InFlight
		}
		stats := b.stats()
		require.Equal(t, 2, stats["orders"].InFlight)
		require.Equal(t, 1, stats["refunds"].InFlight)
		require.NotContains(t, stats, "gone", "it has no messages")
		require.Equal(t, 3, inFlight())

		b.exec("DELETE FROM postbox_messages")
		require.Empty(t, b.stats())
		require.Zero(t, inFlight(), "the outbox is empty")
	})
}
