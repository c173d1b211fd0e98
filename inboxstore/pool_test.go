package inboxstore_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// Handlers leave one connection of the pool to the engine, whatever their number is: while all of them are at work, and for longer
// than a lease, the lease is renewed.
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
	ids := numbers(lanes) // one in each
	b.db.SetMaxOpenConns(connections)
	var atWork, most atomic.Int32
	proceed := make(chan struct{})
	for range stores {
		work(b.over(b.db), func(c *inboxstore.BatchConfig) {
			c.PerKey, c.QueueConfig.Concurrency, c.QueueConfig.Lease = true, connections, time.Second
		}, func(ctx context.Context, msg *message.Message) error {
			if n := atWork.Add(1); n > most.Load() {
				most.Store(n)
			}
			defer atWork.Add(-1)
			if err := b.effect(ctx, msg); err != nil {
				return err
			}
			return hold(ctx, proceed)
		})
	}
	b.eventually(func() bool {
		return b.Count(t, "SELECT COUNT(DISTINCT holder) FROM postbox_lanes WHERE holder IS NOT NULL") == stores
	}, "each store has lanes")
	b.put(ids...)
	b.eventually(func() bool { return atWork.Load() == connections-1 }, "all but one connection is in a handler")
	b.renewed(4)
	close(proceed)
	b.drained()
	require.ElementsMatch(t, ids, b.effects())
	require.EqualValues(t, connections-1, most.Load())
	require.Equal(t, 1, b.Count(t, "SELECT MAX(c) FROM (SELECT COUNT(*) AS c FROM effects GROUP BY id) e"))
}

// A pool of one has no connection to renew a lease with while a handler has it. Its transaction holds the lane, so that a handler may
// take longer than the lease, and another process, which needs the lane of a message that waits, takes all others.
func TestQueue_G10_G6_handler_with_the_only_connection_takes_longer_than_the_lease(t *testing.T) {
	t.Parallel()
	for mode, work := range workers {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				a := newQueueBench(t, database)
				b := a.another()
				a.put("k/1", "k/2", "k/3")
				var runs atomic.Int32
				for _, process := range []*queueBench{a, b} {
					process.db.SetMaxOpenConns(1)
					work(process, func(c *inboxstore.BatchConfig) {
						c.QueueConfig.Lease, c.QueueConfig.Retry.Attempts = time.Second, 2
					}, func(ctx context.Context, msg *message.Message) error {
						if runs.Add(1); msg.UUID != "k/3" {
							a.expired(2)
						}
						return process.effect(ctx, msg)
					})
				}
				a.drained()
				require.Equal(t, []string{"k/1", "k/2", "k/3"}, a.effects())
				require.Empty(t, a.dead())
				require.EqualValues(t, 3, runs.Load(), "no handler has run for nothing")
			})
		})
	}
}

// expired waits until the lease of a lane has been over for so long that the other process has looked for free lanes so many times.
func (b *queueBench) expired(times int) {
	b.t.Helper()
	const over = "SELECT COUNT(*) FROM postbox_lanes WHERE holder IS NOT NULL AND expires_at > 0 AND expires_at < ?"
	others := func() int { return b.Count(b.t, "SELECT MAX(expires_at) FROM postbox_members") }
	b.eventually(func() bool { return b.Count(b.t, over, b.now()) > 0 }, "a lease is over")
	if b.Dialect == postbox.SQLite {
		return // the other process waits for the end of this transaction to write, and so to look
	}
	for last := others(); times > 0; times-- {
		b.eventually(func() bool { return others() > last }, "the other process has looked for lanes")
		last = others()
	}
}
