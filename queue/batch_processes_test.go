package queue_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/queue"
)

// One process works, so that batches are as large as they can be, and another one stands by.
// Also covers feature 0.10.
func TestBatch_G12_one_process_works_and_another_takes_over(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		worked := make(chan int, 100)
		var processes [2]*inboxtest.BatchProcess
		config := inboxtest.QuickBatch(nil)
		for i, bench := range []*queueBench{b, b.another()} {
			processes[i] = bench.Batch(config, func(context.Context, []*message.Message) error {
				worked <- i
				return nil
			})
			b.Await(processes[i].Running(), "a process")
		}
		b.Eventually(func() bool {
			return b.Count(t, "SELECT COUNT(*) FROM postbox_lanes WHERE holder = (SELECT holder FROM postbox_lanes WHERE lane = 0)") == dialect.Lanes
		}, "one has all lanes")
		var first int
		for i := range 10 {
			b.Put(keysOf(1, fmt.Sprint(i), fmt.Sprint(i, " too"))...)
			b.Drained()
			if i == 0 {
				first = <-worked
			}
		}
		require.NoError(t, processes[first].Close())
		for len(worked) > 0 {
			require.Equal(t, first, <-worked)
		}
		b.Put("later/1", "later/2")
		b.Drained()
		require.Equal(t, 1-first, <-worked)
	})
}

// The process at work does not stop, it is gone: its lease runs out.
// Also covers F5.
func TestBatch_G6_another_process_takes_over_after_a_crash(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		b.Put(inboxtest.Numbers(10)...)
		db := database.Open(t)
		gone := make(chan struct{})
		config := inboxtest.QuickBatch(func(c *queue.BatchConfig) { c.Worker.Lease = time.Second })
		b.over(db).Batch(config, func(context.Context, []*message.Message) error {
			_ = db.Close() // it never reaches its database again
			close(gone)
			return nil
		})
		b.Await(gone, "the first process")
		var parts inboxtest.Parts
		b.Batch(config, func(_ context.Context, messages []*message.Message) error {
			parts.Add(messages)
			return nil
		})
		b.Drained()
		require.NotEmpty(t, parts.All())
		require.Empty(t, b.Failures())
	})
}

// Two processes have the same batch, since the first one lost its lease and does not know. The
// effects are there once. Also covers G6 and F10.
func TestBatch_G4_has_its_effect_once_although_the_lease_was_lost(t *testing.T) {
	t.Parallel()
	for _, open := range []func(*testing.T) *testdb.Database{testdb.Postgres, testdb.MySQL} {
		b := newQueueBench(t, open(t))
		ids := keysOf(2, "a", "b", "c")
		b.Put(ids...)
		entered, proceed := make(chan struct{}), make(chan struct{})
		var run atomic.Int32
		sleepy := inboxtest.QuickBatch(func(c *queue.BatchConfig) {
			c.Size, c.Age = len(ids), 0
			c.Worker.Transactional, c.Worker.Lease = true, time.Hour
		})
		zombie := b.Batch(sleepy, func(ctx context.Context, messages []*message.Message) error {
			if run.Add(1) > 1 {
				return inboxtest.ErrHandler
			}
			close(entered)
			if err := inboxtest.Hold(ctx, proceed); err != nil {
				return err
			}
			return b.BatchEffects(ctx, messages)
		})
		b.Await(entered, "the zombie's handler")
		b.Exec(t, "UPDATE postbox_members SET expires_at = 1")
		heir := b.another().Batch(inboxtest.QuickBatch(func(c *queue.BatchConfig) { c.Worker.Transactional = true }), b.BatchEffects)
		b.Drained()
		close(proceed)
		require.NoError(t, zombie.Close())
		require.NoError(t, heir.Close())
		require.ElementsMatch(t, ids, b.Effects())
		require.EqualValues(t, 1, run.Load(), "what was lost is nobody's fault, and halves are not asked")
		require.Empty(t, b.Failures())
	}
}

// The answer to a commit is lost, and so is the connection: the batch is looked for, and there, or
// not. Also covers F26.
func TestBatch_G4_lost_answer_to_the_commit_leaves_one_effect(t *testing.T) {
	t.Parallel()
	for name, committed := range map[string]bool{"committed": true, "lost": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				db, cut := cutting(t, database, committed)
				b := newQueueBench(t, database).Over(db)
				ids := inboxtest.Numbers(10)
				b.Put(ids...)
				cut.Store(true)
				b.Batch(inboxtest.QuickBatch(func(c *queue.BatchConfig) { c.Worker.Transactional = true }), b.BatchEffects)
				b.Drained()
				require.False(t, cut.Load())
				require.ElementsMatch(t, ids, b.Effects())
				require.Empty(t, b.Failures())
			})
		})
	}
}

func TestBatch_head_policies_are_those_of_the_queue(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		b.Put("bad/1", "bad/2", "good/1", "bad/3", "good/2")
		b.Batch(inboxtest.QuickBatch(func(c *queue.BatchConfig) {
			c.Worker.Park, c.Worker.Lease = true, time.Second
		}), func(_ context.Context, messages []*message.Message) error {
			if inboxtest.OneOf(messages, []string{"bad/1"}) {
				return postbox.Permanent(inboxtest.ErrHandler)
			}
			return nil
		})
		b.parked(1)
		require.Len(t, b.Failures(), 1)
	})
}
