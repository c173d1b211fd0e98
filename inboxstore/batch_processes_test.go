package inboxstore_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// One process works, so that batches are as large as they can be, and another one stands by.
func TestBatch_S0_0_10_G12_one_works_and_the_other_takes_over(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		worked := make(chan int, 100)
		var processes [2]*batchProcess
		config := quickBatch(nil)
		for i, bench := range []*queueBench{b, b.another()} {
			processes[i] = bench.batch(config, func(context.Context, []*message.Message) error {
				worked <- i
				return nil
			})
			b.await(processes[i].Running(), "a process")
		}
		b.eventually(func() bool {
			return b.Count(t, "SELECT COUNT(*) FROM postbox_lanes WHERE holder = (SELECT holder FROM postbox_lanes WHERE lane = 0)") == spool.DefaultLanes
		}, "one has all lanes")
		var first int
		for i := range 10 {
			b.put(keysOf(1, fmt.Sprint(i), fmt.Sprint(i, " too"))...)
			b.drained()
			if i == 0 {
				first = <-worked
			}
		}
		require.NoError(t, processes[first].Close())
		for len(worked) > 0 {
			require.Equal(t, first, <-worked)
		}
		b.put("later/1", "later/2")
		b.drained()
		require.Equal(t, 1-first, <-worked)
	})
}

// The process at work does not stop, it is gone: its lease runs out.
func TestBatch_G6_F5_a_process_that_is_gone_is_succeeded(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		b.put(numbers(10)...)
		db := database.Open(t)
		gone := make(chan struct{})
		config := quickBatch(func(c *inboxstore.BatchConfig) { c.QueueConfig.Lease = time.Second })
		b.over(db).batch(config, func(context.Context, []*message.Message) error {
			_ = db.Close() // it never reaches its database again
			close(gone)
			return nil
		})
		b.await(gone, "the first process")
		var parts parts
		b.batch(config, func(_ context.Context, messages []*message.Message) error {
			parts.add(messages)
			return nil
		})
		b.drained()
		require.NotEmpty(t, parts.all())
		require.Empty(t, b.failures())
	})
}

// Two processes have the same batch, since the first one lost its lease and does not know. The effects are there once.
func TestBatch_G4_G6_F10_effect_once_although_the_lease_was_lost(t *testing.T) {
	t.Parallel()
	for _, open := range []func(*testing.T) *testdb.Database{testdb.Postgres, testdb.MySQL} {
		b := newQueueBench(t, open(t))
		ids := keysOf(2, "a", "b", "c")
		b.put(ids...)
		entered, proceed := make(chan struct{}), make(chan struct{})
		var run atomic.Int32
		sleepy := quickBatch(func(c *inboxstore.BatchConfig) {
			c.Size, c.Age = len(ids), 0
			c.QueueConfig.Transactional, c.QueueConfig.Lease = true, time.Hour
		})
		zombie := b.batch(sleepy, func(ctx context.Context, messages []*message.Message) error {
			if run.Add(1) > 1 {
				return errHandler
			}
			close(entered)
			if err := hold(ctx, proceed); err != nil {
				return err
			}
			return b.batchEffects(ctx, messages)
		})
		b.await(entered, "the zombie's handler")
		b.Exec(t, "UPDATE postbox_lanes SET expires_at = 1")
		b.Exec(t, "UPDATE postbox_members SET expires_at = 1")
		heir := b.another().batch(quickBatch(func(c *inboxstore.BatchConfig) { c.QueueConfig.Transactional = true }), b.batchEffects)
		b.drained()
		close(proceed)
		require.NoError(t, zombie.Close())
		require.NoError(t, heir.Close())
		require.ElementsMatch(t, ids, b.effects())
		require.EqualValues(t, 1, run.Load(), "what was lost is nobody's fault, and halves are not asked")
		require.Empty(t, b.failures())
	}
}

// The answer to a commit is lost, and so is the connection: the batch is looked for, and there, or not.
func TestBatch_F26_G4_answer_to_the_commit_is_lost(t *testing.T) {
	t.Parallel()
	for name, committed := range map[string]bool{"committed": true, "lost": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				db, cut := cutting(t, database, committed)
				b := newQueueBench(t, database).over(db)
				ids := numbers(10)
				b.put(ids...)
				cut.Store(true)
				b.batch(quickBatch(func(c *inboxstore.BatchConfig) { c.QueueConfig.Transactional = true }), b.batchEffects)
				b.drained()
				require.False(t, cut.Load())
				require.ElementsMatch(t, ids, b.effects())
				require.Empty(t, b.failures())
			})
		})
	}
}

func TestBatch_head_policies_are_those_of_the_queue(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		b.put("bad/1", "bad/2", "good/1", "bad/3", "good/2")
		b.batch(quickBatch(func(c *inboxstore.BatchConfig) {
			c.QueueConfig.Head, c.QueueConfig.Lease = inboxstore.ParkHead, time.Second
		}), func(_ context.Context, messages []*message.Message) error {
			if oneOf(messages, []string{"bad/1"}) {
				return postbox.Permanent(errHandler)
			}
			return nil
		})
		b.parked(1)
		require.Len(t, b.failures(), 1)
	})
}
