package inboxstore_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// Handlers leave one connection of the pool to the engine, whatever their number is: while all of them are at work, and for longer
// than a lease, the lease is renewed.
func TestQueue_G6_leases_are_renewed_while_every_handler_has_a_transaction(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		const connections = 4
		b := newQueueBench(t, database)
		ids := numbers(3 * connections)
		b.put(ids...)
		b.db.SetMaxOpenConns(connections)
		var atWork, most atomic.Int32
		proceed := make(chan struct{})
		b.start(quick(func(c *inboxstore.QueueConfig) {
			c.Transactional, c.Concurrency, c.Lease, c.Mode = true, connections, time.Second, inboxstore.Single
		}), func(msg *message.Message) error {
			if n := atWork.Add(1); n > most.Load() {
				most.Store(n)
			}
			defer atWork.Add(-1)
			if err := b.effect(msg.Context(), msg); err != nil {
				return err
			}
			return hold(msg.Context(), proceed)
		})
		b.eventually(func() bool { return atWork.Load() == connections-1 }, "all but one connection is in a handler")
		b.renewed(4)
		close(proceed)
		b.drained()
		require.ElementsMatch(t, ids, b.effects())
		require.EqualValues(t, connections-1, most.Load())
		require.Equal(t, 1, b.Count(t, "SELECT MAX(c) FROM (SELECT COUNT(*) AS c FROM effects GROUP BY id) e"))
	})
}
