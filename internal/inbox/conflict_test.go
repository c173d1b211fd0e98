package inbox_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/queue"
)

// However often a message conflicts with others, it is neither an attempt nor an outage: others go
// on, and in the end it is done.
func TestQueue_G7_conflicts_in_all_tries_count_no_attempt_and_pause_no_other_message(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*queue.Config){
		"single": inboxtest.Transactional, "micro-batch": func(c *queue.Config) { c.MicroBatch = 3 },
		"not transactional": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
				b := newQueueBench(t, database)
				b.Put("a/1", "a/2", "b/1", "c/1")
				var conflicts atomic.Int32
				var order inboxtest.Journal
				b.Start(inboxtest.Quick(change), func(msg *message.Message) error {
					ctx := msg.Context()
					if change == nil {
						tx, err := b.Pool.BeginTx(ctx, nil)
						if err != nil {
							return err
						}
						defer func() { _ = tx.Rollback() }()
						ctx = postbox.ContextWithTx(ctx, tx)
						defer order.Add(msg.UUID)
					} else if err := b.Effect(ctx, msg); err != nil {
						return err
					}
					if msg.UUID == "a/1" && conflicts.Add(1) <= inboxtest.ManyConflicts {
						return inboxtest.RaiseConflict(ctx, b.Dialect)
					}
					return nil
				})
				b.Drained()
				if change != nil {
					require.ElementsMatch(t, []string{"a/1", "a/2", "b/1", "c/1"}, b.Effects())
					require.Equal(t, []string{"a/1", "a/2"}, inboxtest.OfKey(b.Effects(), "a"))
				}
				require.Empty(t, b.Failures())
				require.Empty(t, b.Dead())
			})
		})
	}
}

func TestBatch_G7_conflicts_in_all_tries_count_no_attempt(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		b.Put(inboxtest.Numbers(6)...)
		var conflicts atomic.Int32
		b.Batch(inboxtest.QuickBatch(func(c *queue.BatchConfig) { c.Worker.Transactional = true }),
			func(ctx context.Context, messages []*message.Message) error {
				if err := b.BatchEffects(ctx, messages); err != nil {
					return err
				}
				if inboxtest.OneOf(messages, []string{"003"}) && conflicts.Add(1) <= inboxtest.ManyConflicts {
					return inboxtest.RaiseConflict(ctx, b.Dialect)
				}
				return nil
			})
		b.Drained()
		require.ElementsMatch(t, inboxtest.Numbers(6), b.Effects())
		require.Empty(t, b.Failures())
	})
}

// places are where an inbox may be: in a transaction of its own, or in one of somebody else.
func (b *queueBench) places() map[string]func(fn func(ctx context.Context) error) error {
	return map[string]func(fn func(ctx context.Context) error) error{
		"own": func(fn func(ctx context.Context) error) error { return fn(b.T.Context()) },
		"joined": func(fn func(ctx context.Context) error) error {
			tx, err := b.Pool.BeginTx(b.T.Context(), nil)
			require.NoError(b.T, err)
			defer func() { require.NoError(b.T, tx.Rollback()) }()
			return fn(postbox.ContextWithTx(b.T.Context(), tx))
		},
	}
}

// A caller of the store must not count a conflict as an attempt, so a conflict is not the handler's
// error.
func TestStore_G7_conflicts_in_all_tries_are_no_failure_of_the_handler(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		for name, within := range b.places() {
			err := within(func(ctx context.Context) error {
				_, err := b.Store.Once(ctx, inboxstore.Key{Consumer: "billing", Topic: "orders", MessageID: "1"}, func(ctx context.Context) error { return inboxtest.RaiseConflict(ctx, b.Dialect) })
				return err
			})
			var failure *inboxstore.HandlerError
			require.Error(t, err, name)
			require.NotErrorAs(t, err, &failure, name)
			require.ErrorContains(t, err, "Konflikt", name)
		}
	})
}
