package inboxstore_test

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
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// awayBatch is a configuration that knows an outage, and does not probe it before the test has ended.
func awayBatch(inTx bool) inboxstore.BatchConfig {
	return quickBatch(func(c *inboxstore.BatchConfig) {
		awayIsOutage(&c.QueueConfig)
		c.QueueConfig.Transactional, c.QueueConfig.Lease = inTx, time.Second
		c.QueueConfig.ProbeMin, c.QueueConfig.ProbeMax = time.Hour, time.Hour
	})
}

// What the handler needs is away: all wait, nobody is blamed, and halves are not asked.
func TestBatch_F13_G7_N5_outage_postpones_all(t *testing.T) {
	t.Parallel()
	for _, inTx := range []bool{false, true} {
		t.Run(fmt.Sprintf("in a transaction is %t", inTx), func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				b := newQueueBench(t, database)
				ids := numbers(20)
				b.put(ids...)
				var calls atomic.Int32
				p := b.batch(awayBatch(inTx), func(context.Context, []*message.Message) error {
					calls.Add(1)
					return fmt.Errorf("ask: %w", errAway)
				})
				b.eventually(func() bool { return calls.Load() > 0 }, "a call")
				b.renewed(2)
				require.EqualValues(t, 1, calls.Load())
				require.Equal(t, len(ids), b.untried())
				require.NoError(t, p.Close())

				calls.Store(0)
				config := awayBatch(inTx)
				config.QueueConfig.ProbeMin, config.QueueConfig.ProbeMax = time.Millisecond, 5*time.Millisecond
				b.batch(config, func(context.Context, []*message.Message) error {
					if calls.Add(1) <= 5 { // more than there are attempts
						return errAway
					}
					return nil
				})
				b.drained()
				require.Empty(t, b.attempts())
				require.Empty(t, b.dead())
			})
		})
	}
}

// The outage begins while a culprit is looked for: what has not been handled yet waits, and only the culprit, if it was
// found, has an attempt.
func TestBatch_F13_G7_N2_outage_in_the_middle_of_the_search(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		ids := numbers(16)
		b.put(ids...)
		var calls atomic.Int32
		p := b.batch(awayBatch(true), func(ctx context.Context, messages []*message.Message) error {
			if calls.Add(1) >= 6 {
				return errAway
			}
			if err := b.batchEffects(ctx, messages); err != nil || !oneOf(messages, []string{"001"}) {
				return err
			}
			return errHandler
		})
		b.eventually(func() bool { return calls.Load() >= 6 }, "the outage")
		b.renewed(2)
		require.EqualValues(t, 6, calls.Load(), "all, 0 to 7, to 3, to 1, 0, 1")
		require.Equal(t, []string{"000"}, b.effects())
		require.Empty(t, b.attempts())
		require.Equal(t, 15, b.untried())
		require.NoError(t, p.Close())
	})
}

// A service is away for one message only, and the handler says for which. The others are done; that one waits for the
// next probe, and does not come again and again.
func TestBatch_F13_G7_outage_named_for_a_message(t *testing.T) {
	t.Parallel()
	for _, inTx := range []bool{false, true} {
		t.Run(fmt.Sprintf("in a transaction is %t", inTx), func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				b := newQueueBench(t, database)
				b.put(numbers(6)...)
				var parts parts
				b.batch(awayBatch(inTx), func(_ context.Context, messages []*message.Message) error {
					parts.add(messages)
					var failed inboxstore.BatchError
					for _, msg := range messages {
						if msg.UUID == "003" {
							failed.Fail(msg, errAway)
						}
					}
					return failed.OrNil()
				})
				b.eventually(func() bool { return b.pending() == 1 }, "the others are done")
				b.renewed(2)
				calls := parts.all()
				require.Equal(t, numbers(6), calls[0])
				require.LessOrEqual(t, len(calls), 2, "%v", calls)
				require.Equal(t, 1, b.untried())
			})
		})
	}
}

// A handler that names each message of a batch with an error of the database: a database that hangs must not be asked for each of them.
func TestBatch_G7_asks_the_database_once_for_all_errors_of_a_batch(t *testing.T) {
	t.Parallel()
	for mode, inTx := range map[string]bool{"in a transaction": true, "without one": false} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
				db, statements := counted(t, database)
				b := newQueueBench(t, database).over(db)
				ids := numbers(20)
				b.put(ids...)
				shutdown := map[postbox.Dialect]error{
					postbox.PostgreSQL: &pq.Error{Code: "57P01"}, postbox.MySQL: &mysql.MySQLError{Number: 1053, Message: "shutdown"},
				}[database.Dialect]
				var calls atomic.Int32
				var before, asks atomic.Int64
				b.batch(quickBatch(func(c *inboxstore.BatchConfig) { c.QueueConfig.Transactional = inTx }), func(_ context.Context, messages []*message.Message) error {
					switch calls.Add(1) {
					case 1:
						before.Store(statements.asks.Load())
						var failed inboxstore.BatchError
						for _, msg := range messages {
							failed.Fail(msg, shutdown)
						}
						return failed.OrNil()
					case 2:
						asks.Store(statements.asks.Load() - before.Load())
					}
					return nil
				})
				b.drained()
				require.EqualValues(t, 1, asks.Load())
				require.Empty(t, b.attempts())
			})
		})
	}
}
