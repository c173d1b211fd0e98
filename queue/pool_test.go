package queue_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/queue"
)

// Handlers leave one connection of the pool to the engine, whatever their number is: while all of
// them are at work, and for longer than a lease, the lease is renewed.
func TestQueue_G6_leases_are_renewed_while_every_handler_has_a_transaction(t *testing.T) {
	t.Parallel()
	for mode, work := range workers {
		for name, stores := range map[string]int{"one store": 1, "two stores on one pool": 2} {
			t.Run(mode+", "+name, func(t *testing.T) {
				t.Parallel()
				testdb.EachServer(t, func(t *testing.T, database *testdb.Database) { leasesAreRenewed(t, database, work, stores) })
			})
		}
	}
}

func leasesAreRenewed(t *testing.T, database *testdb.Database, work worker, stores int) {
	t.Helper()
	const connections, lanes = 4, 32
	b := newQueueBench(t, database)
	ids := inboxtest.Numbers(lanes) // one in each
	b.Pool.SetMaxOpenConns(connections)
	var atWork, most atomic.Int32
	proceed := make(chan struct{})
	for range stores {
		work(b.over(b.Pool), func(c *queue.BatchConfig) {
			c.PerKey, c.Worker.Concurrency, c.Worker.Lease = true, connections, time.Second
		}, func(ctx context.Context, msg *message.Message) error {
			if n := atWork.Add(1); n > most.Load() {
				most.Store(n)
			}
			defer atWork.Add(-1)
			if err := b.Effect(ctx, msg); err != nil {
				return err
			}
			return inboxtest.Hold(ctx, proceed)
		})
	}
	b.Eventually(func() bool {
		return b.Count(t, "SELECT COUNT(DISTINCT holder) FROM postbox_lanes WHERE holder IS NOT NULL") == stores
	}, "each store has lanes")
	b.Put(ids...)
	b.Eventually(func() bool { return atWork.Load() == connections-1 }, "all but one connection is in a handler")
	b.Renewed(4)
	close(proceed)
	b.Drained()
	require.ElementsMatch(t, ids, b.Effects())
	require.EqualValues(t, connections-1, most.Load())
	require.Equal(t, 1, b.Count(t, "SELECT MAX(c) FROM (SELECT COUNT(*) AS c FROM effects GROUP BY id) e"))
}

// A pool of one has no connection to renew a lease with while a handler has it. Its transaction
// holds the lane, so that a handler may take longer than the lease, and another process, which
// needs the lane of a message that waits, takes all others. Also covers G6.
func TestQueue_G10_a_handler_with_the_only_connection_keeps_its_lease(t *testing.T) {
	t.Parallel()
	for mode, work := range workers {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				a := newQueueBench(t, database)
				b := a.another()
				a.Put("k/1", "k/2", "k/3")
				var runs atomic.Int32
				for _, process := range []*queueBench{a, b} {
					process.Pool.SetMaxOpenConns(1)
					work(process, func(c *queue.BatchConfig) {
						c.Worker.Lease, c.Worker.Retry.Attempts = time.Second, 2
					}, func(ctx context.Context, msg *message.Message) error {
						if runs.Add(1); msg.UUID != "k/3" {
							a.expired(2)
						}
						return process.Effect(ctx, msg)
					})
				}
				a.Drained()
				require.Equal(t, []string{"k/1", "k/2", "k/3"}, a.Effects())
				require.Empty(t, a.Dead())
				require.EqualValues(t, 3, runs.Load(), "no handler has run for nothing")
			})
		})
	}
}

// expired waits until the lease of a lane has been over for so long that the other process has
// looked for free lanes so many times.
func (b *queueBench) expired(times int) {
	b.T.Helper()
	const over = "SELECT COUNT(*) FROM postbox_lanes l WHERE holder IS NOT NULL AND NOT EXISTS (SELECT 1 FROM postbox_members m WHERE m.holder = l.holder AND m.expires_at >= ?)"
	others := func() int { return b.Count(b.T, "SELECT MAX(expires_at) FROM postbox_members") }
	b.Eventually(func() bool { return b.Count(b.T, over, b.now()) > 0 }, "a lease is over")
	if b.Dialect == postbox.SQLite {
		return // the other process waits for the end of this transaction to write, and so to look
	}
	for last := others(); times > 0; times-- {
		b.Eventually(func() bool { return others() > last }, "the other process has looked for lanes")
		last = others()
	}
}
