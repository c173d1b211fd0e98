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

// first is the only outbox or queue.
func (b *bench) first() admin.QueueInfo {
	b.Helper()
	queues, err := b.admin.Queues(b.Context())
	require.NoError(b, err)
	require.Len(b, queues, 1)
	return queues[0]
}

func TestQueues_count_messages_in_flight_as_of_the_last_heartbeat(t *testing.T) {
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
		b.eventually(func() bool { return b.first().InFlight == 3 }, "a heartbeat tells")
		require.Equal(t, 3, b.first().Pending)

		// After two heartbeats it also tells which call has not returned for longest.
		var call *admin.Call
		b.eventually(func() bool {
			call = b.first().LongCall
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
		b.join("dead", beat(map[string]int{"orders": 100}), -1)
		require.Equal(t, 3, b.first().InFlight)
		close(proceed)
		b.eventually(func() bool { return b.pending() == 0 }, "all are handled")
		stop()
		require.Zero(t, b.first().Pending)
	})
}

// A message that was handled after the heartbeat is no longer pending, and so cannot be in flight.
func TestQueues_never_count_more_in_flight_than_are_pending(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.append(draft("1", "orders", "a"), draft("2", "orders", "b"), draft("3", "refunds", "c"))
		b.join("first", beat(map[string]int{"orders": 100, "gone": 7}), time.Hour.Microseconds())
		b.join("second", beat(map[string]int{"orders": 100, "refunds": 1}), time.Hour.Microseconds())
		require.Equal(t, 3, b.first().InFlight)

		b.exec("DELETE FROM postbox_messages")
		require.Zero(t, b.first().InFlight, "the outbox is empty")
	})
}
