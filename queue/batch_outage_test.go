package queue_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/lib/pq"
	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/queue"
)

// awayBatch is a configuration that knows an outage, and does not probe it before the test has
// ended.
func awayBatch(inTx bool) queue.BatchConfig {
	return inboxtest.QuickBatch(func(c *queue.BatchConfig) {
		awayIsOutage(&c.Worker)
		c.Worker.Transactional, c.Worker.Lease = inTx, time.Second
		c.Worker.ProbeMin, c.Worker.ProbeMax = time.Hour, time.Hour
	})
}

// What the handler needs is away: all wait, nobody is blamed, and halves are not asked.
// Also covers F13 and feature N5.
func TestBatch_G7_an_outage_postpones_the_whole_batch(t *testing.T) {
	t.Parallel()
	for _, inTx := range []bool{false, true} {
		t.Run(fmt.Sprintf("in a transaction is %t", inTx), func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				b := newQueueBench(t, database)
				ids := inboxtest.Numbers(20)
				b.Put(ids...)
				var calls atomic.Int32
				p := b.Batch(awayBatch(inTx), func(context.Context, []*message.Message) error {
					calls.Add(1)
					return fmt.Errorf("ask: %w", errAway)
				})
				b.Eventually(func() bool { return calls.Load() > 0 }, "a call")
				b.Renewed(2)
				require.EqualValues(t, 1, calls.Load())
				require.Equal(t, len(ids), b.Untried())
				require.NoError(t, p.Close())

				calls.Store(0)
				config := awayBatch(inTx)
				config.Worker.ProbeMin, config.Worker.ProbeMax = time.Millisecond, 5*time.Millisecond
				b.Batch(config, func(context.Context, []*message.Message) error {
					if calls.Add(1) <= 5 { // more than there are attempts
						return errAway
					}
					return nil
				})
				b.Drained()
				require.Empty(t, b.Attempts())
				require.Empty(t, b.Dead())
			})
		})
	}
}

// The outage begins while a culprit is looked for: what has not been handled yet waits, and only
// the culprit, if it was found, has an attempt. Also covers F13 and feature N2.
func TestBatch_G7_an_outage_during_the_search_for_a_culprit_counts_no_attempt(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		ids := inboxtest.Numbers(16)
		b.Put(ids...)
		var calls atomic.Int32
		p := b.Batch(awayBatch(true), func(ctx context.Context, messages []*message.Message) error {
			if calls.Add(1) >= 6 {
				return errAway
			}
			if err := b.BatchEffects(ctx, messages); err != nil || !inboxtest.OneOf(messages, []string{"001"}) {
				return err
			}
			return inboxtest.ErrHandler
		})
		b.Eventually(func() bool { return calls.Load() >= 6 }, "the outage")
		b.Renewed(2)
		require.EqualValues(t, 6, calls.Load(), "all, 0 to 7, to 3, to 1, 0, 1")
		require.Equal(t, []string{"000"}, b.Effects())
		require.Empty(t, b.Attempts())
		require.Equal(t, 15, b.Untried())
		require.NoError(t, p.Close())
	})
}

// A service is away for one message only, and the handler says for which. The others are done; that
// one waits for the next probe, and does not come again and again. Also covers F13.
func TestBatch_G7_an_outage_for_one_message_postpones_only_that_one(t *testing.T) {
	t.Parallel()
	for _, inTx := range []bool{false, true} {
		t.Run(fmt.Sprintf("in a transaction is %t", inTx), func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				b := newQueueBench(t, database)
				b.Put(inboxtest.Numbers(6)...)
				var parts inboxtest.Parts
				b.Batch(awayBatch(inTx), func(_ context.Context, messages []*message.Message) error {
					parts.Add(messages)
					var failed queue.BatchError
					for _, msg := range messages {
						if msg.UUID == "003" {
							failed.Fail(msg, errAway)
						}
					}
					return failed.OrNil()
				})
				b.Eventually(func() bool { return b.Pending() == 1 }, "the others are done")
				b.Renewed(2)
				calls := parts.All()
				require.Equal(t, inboxtest.Numbers(6), calls[0])
				require.LessOrEqual(t, len(calls), 2, "%v", calls)
				require.Equal(t, 1, b.Untried())
			})
		})
	}
}

// A handler that names each message of a batch with an error of the database: a database that hangs
// must not be asked for each of them.
func TestBatch_G7_asks_the_database_once_for_all_errors_of_a_batch(t *testing.T) {
	t.Parallel()
	for mode, inTx := range map[string]bool{"in a transaction": true, "without one": false} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
				db, statements := inboxtest.Counted(t, database)
				b := newQueueBench(t, database).Over(db)
				ids := inboxtest.Numbers(20)
				b.Put(ids...)
				shutdown := map[postbox.Dialect]error{
					postbox.PostgreSQL: &pq.Error{Code: "57P01"}, postbox.MySQL: &mysql.MySQLError{Number: 1053, Message: "shutdown"},
				}[database.Dialect]
				var calls atomic.Int32
				var before, asks atomic.Int64
				b.Batch(inboxtest.QuickBatch(func(c *queue.BatchConfig) { c.Worker.Transactional = inTx }), func(_ context.Context, messages []*message.Message) error {
					switch calls.Add(1) {
					case 1:
						before.Store(statements.Asks.Load())
						var failed queue.BatchError
						for _, msg := range messages {
							failed.Fail(msg, shutdown)
						}
						return failed.OrNil()
					case 2:
						asks.Store(statements.Asks.Load() - before.Load())
					}
					return nil
				})
				b.Drained()
				require.EqualValues(t, 1, asks.Load())
				require.Empty(t, b.Attempts())
			})
		})
	}
}
