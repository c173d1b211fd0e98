package queue_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/queue"
)

// impatientBench is a queue whose store lets handlers go on for a short time after a close.
func impatientBench(t *testing.T, database *testdb.Database) *queueBench {
	t.Helper()
	b := newQueueBench(t, database)
	b.Store = inboxtest.StoreFor(t, database, b.Pool, func(c *inboxstore.Config) { c.CloseTimeout = 50 * time.Millisecond })
	return b
}

// Also covers F24.
func TestBatch_G12_close_does_not_wait_for_a_handler_that_never_returns(t *testing.T) {
	t.Parallel()
	for name, inTx := range map[string]bool{"in a transaction": true, "without one": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				b := impatientBench(t, database)
				b.Pool.SetMaxOpenConns(2) // the handler keeps one
				b.Put("a/1")
				entered, proceed, returns := make(chan struct{}), make(chan struct{}), make(chan struct{})
				p := b.Batch(inboxtest.QuickBatch(func(c *queue.BatchConfig) { c.Worker.Transactional = inTx }), func(context.Context, []*message.Message) error {
					close(entered)
					<-proceed
					close(returns)
					return nil
				})
				defer close(proceed)
				b.Await(entered, "the handler")
				closed := make(chan struct{})
				go func() {
					defer close(closed)
					_ = p.Close()
				}()
				b.Await(closed, "the end")
				select {
				case <-returns:
					require.Fail(t, "the handler has returned")
				default:
				}
				require.Equal(t, 1, b.Untried())
				require.Equal(t, 1, b.Count(t, "SELECT COUNT(*) FROM postbox_lanes WHERE holder IS NOT NULL"), "all other lanes are free")
			})
		})
	}
}

// A batch that is handled in halves goes on with none after the time for handlers is over.
func TestBatch_G12_no_part_is_handled_after_the_close_timeout(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := impatientBench(t, database)
		b.Put("a/1", "b/1")
		var parts inboxtest.Parts
		entered := make(chan struct{})
		p := b.Batch(inboxtest.QuickBatch(func(c *queue.BatchConfig) { c.Size = 2 }), func(ctx context.Context, messages []*message.Message) error {
			if _, call := parts.Add(messages); call > 1 {
				close(entered)
				<-ctx.Done()
				return nil
			}
			return inboxtest.ErrHandler
		})
		b.Await(entered, "the first half")
		require.NoError(t, p.Close())
		require.Equal(t, [][]string{{"a/1", "b/1"}, {"a/1"}}, parts.All())
		require.Equal(t, 1, b.Pending(), "the first half is done")
		require.Equal(t, 1, b.Untried())
	})
}
