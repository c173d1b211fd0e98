package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/queue"
)

func without(ids, culprits []string) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return slices.Contains(culprits, id) })
}

// Each culprit costs at most two calls for each of the seven times that a hundred can be halved,
// and then one for each attempt that is left. Whoever takes the queue over has its first lane
// before the others, and perhaps a batch of that. Also covers feature N2.
func TestBatch_finds_culprits_among_a_hundred_messages(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		culprits []string
		fail     func() // nil: it returns an error
		failure  string // what the failure record says then
	}{
		"one":              {culprits: []string{"037"}},
		"the first":        {culprits: []string{"000"}},
		"the last, panics": {culprits: []string{"099"}, fail: func() { panic("oh no") }, failure: `(?s)^panic: oh no\n.*batch_bisection_test\.go:\d+`},
		"several":          {culprits: []string{"010", "011", "077"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				b := newQueueBench(t, database)
				ids := inboxtest.Numbers(100)
				b.Put(ids...)
				var parts inboxtest.Parts
				b.Batch(inboxtest.QuickBatch(func(c *queue.BatchConfig) { c.Worker.Transactional = true }), func(ctx context.Context, messages []*message.Message) error {
					parts.Add(messages)
					if err := b.BatchEffects(ctx, messages); err != nil || !inboxtest.OneOf(messages, test.culprits) {
						return err
					}
					if test.fail != nil {
						test.fail()
					}
					return inboxtest.ErrHandler
				})
				b.Drained()
				require.Equal(t, without(ids, test.culprits), slices.Sorted(slices.Values(b.Effects())), "each once")
				require.ElementsMatch(t, test.culprits, b.Dead())
				require.Len(t, b.Failures(), 3*len(test.culprits), "no other message has an attempt")
				require.LessOrEqual(t, len(parts.All()), 2+(2*7+2)*len(test.culprits))
				for _, failure := range b.Failures() {
					if test.fail != nil {
						require.Regexp(t, test.failure, failure)
					} else {
						require.Equal(t, inboxtest.ErrHandler.Error(), failure)
					}
				}
			})
		})
	}
}

// Covers feature N2.
func TestBatch_in_which_each_message_fails_is_dead(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		ids := inboxtest.Numbers(9)
		b.Put(ids...)
		b.Batch(inboxtest.QuickBatch(nil), func(context.Context, []*message.Message) error { return postbox.Permanent(inboxtest.ErrHandler) })
		b.Drained()
		require.ElementsMatch(t, ids, b.Dead())
		require.Len(t, b.Failures(), len(ids))
	})
}

// Without a transaction a handler sees messages again, and only the culprit is tried again for its
// own sake. Also covers feature N2.
func TestBatch_without_a_transaction_tries_only_the_culprit_again(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		ids := inboxtest.Numbers(16)
		b.Put(ids...)
		var good, all inboxtest.Parts
		b.Batch(inboxtest.QuickBatch(nil), func(ctx context.Context, messages []*message.Message) error {
			if _, found := postbox.TxFromContext(ctx); found {
				t.Error("a transaction that nobody asked for")
			}
			all.Add(messages)
			if inboxtest.OneOf(messages, []string{"005"}) {
				return inboxtest.ErrHandler
			}
			good.Add(messages)
			return nil
		})
		b.Drained()
		require.Equal(t, []string{"005"}, b.Dead())
		require.ElementsMatch(t, without(ids, []string{"005"}), slices.Concat(good.All()...), "each is done once")
		require.Len(t, all.All(), 1+2*4+2)
	})
}

// A handler that knows which messages failed spares itself the search.
// Also covers feature N2.
func TestBatch_BatchError_names_the_culprits(t *testing.T) {
	t.Parallel()
	for _, inTx := range []bool{false, true} {
		t.Run(fmt.Sprintf("in a transaction is %t", inTx), func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				b := newQueueBench(t, database)
				ids, culprits := inboxtest.Numbers(20), []string{"003", "017"}
				b.Put(ids...)
				var parts inboxtest.Parts
				b.Batch(inboxtest.QuickBatch(func(c *queue.BatchConfig) { c.Worker.Transactional = inTx }), func(ctx context.Context, messages []*message.Message) error {
					parts.Add(messages)
					if inTx {
						if err := b.BatchEffects(ctx, messages); err != nil {
							return err
						}
					}
					var failed queue.BatchError
					for _, msg := range messages {
						switch msg.UUID {
						case "003":
							failed.Fail(msg, fmt.Errorf("check: %w", inboxtest.ErrHandler))
						case "017":
							failed.Fail(msg, postbox.Permanent(inboxtest.ErrHandler))
						default:
							failed.Fail(msg, nil)
						}
					}
					if err := failed.OrNil(); err != nil {
						return fmt.Errorf("handle: %w", err)
					}
					return nil
				})
				b.Drained()
				require.ElementsMatch(t, culprits, b.Dead())
				require.ElementsMatch(t, []string{"check: " + inboxtest.ErrHandler.Error(), "check: " + inboxtest.ErrHandler.Error(), "check: " + inboxtest.ErrHandler.Error(), inboxtest.ErrHandler.Error()}, b.Failures())
				want := [][]string{ids, {"003"}, {"003"}}
				if inTx {
					want = [][]string{ids, without(ids, culprits), {"003"}, {"003"}}
					require.ElementsMatch(t, without(ids, culprits), b.Effects())
				}
				require.Equal(t, want, parts.All())
			})
		})
	}
}

// A BatchError of which no message is in the batch says nothing about it.
// Also covers feature N2.
func TestBatch_BatchError_that_names_no_message_of_the_batch_is_an_ordinary_error(t *testing.T) {
	t.Parallel()
	b := newQueueBench(t, testdb.SQLite(t))
	b.Put(inboxtest.Numbers(4)...)
	b.Batch(inboxtest.QuickBatch(nil), func(_ context.Context, messages []*message.Message) error {
		if !inboxtest.OneOf(messages, []string{"002"}) {
			return nil
		}
		var failed queue.BatchError
		failed.Fail(messages[0].Copy(), inboxtest.ErrHandler)
		return failed.OrNil()
	})
	b.Drained()
	require.Equal(t, []string{"002"}, b.Dead())
	require.Contains(t, b.Failures()[0], "1 of the batch's messages failed; 002: "+inboxtest.ErrHandler.Error())
}

func TestBatchError_text_and_nil(t *testing.T) {
	t.Parallel()
	var failed queue.BatchError
	require.NoError(t, failed.OrNil())
	msg := message.NewMessage("1", nil)
	failed.Fail(msg, nil)
	require.NoError(t, failed.OrNil())
	failed.Fail(msg, errors.New("one"))
	failed.Fail(msg, errors.New("two"))
	require.EqualError(t, failed.OrNil(), "1 of the batch's messages failed; 1: two")
	for i := range 20 {
		failed.Fail(message.NewMessage(fmt.Sprint("other ", i), nil), inboxtest.ErrHandler)
	}
	require.ErrorContains(t, failed.OrNil(), "21 of the batch's messages failed; 1: two; other 0: ")
	require.ErrorContains(t, failed.OrNil(), "other 8: handler says no, …")
	require.NotContains(t, failed.OrNil().Error(), "other 9")
}

// What stands behind a culprit of its key waits until that is done or dead; other keys do not.
// Also covers feature N1 and feature N2.
func TestBatch_G3_the_key_of_a_culprit_waits(t *testing.T) {
	t.Parallel()
	for _, named := range []bool{false, true} {
		t.Run(fmt.Sprintf("the culprit is named is %t", named), func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				b := newQueueBench(t, database)
				ids := keysOf(6, "g", "b", "c")
				b.Put(ids...)
				var rounds inboxtest.Journal
				var parts inboxtest.Parts
				b.Batch(inboxtest.QuickBatch(func(c *queue.BatchConfig) { c.Worker.Transactional = true }), func(ctx context.Context, messages []*message.Message) error {
					parts.Add(messages)
					if err := b.BatchEffects(ctx, messages); err != nil {
						return err
					}
					for _, msg := range messages {
						if msg.UUID != "b/2" || rounds.Times("alone") == 2 {
							continue
						}
						if len(messages) == 1 || named {
							rounds.Add("alone")
						}
						if named {
							var failed queue.BatchError
							failed.Fail(msg, inboxtest.ErrHandler)
							return failed.OrNil()
						}
						return inboxtest.ErrHandler
					}
					return nil
				})
				b.Drained()
				require.ElementsMatch(t, ids, b.Effects(), "each once")
				order := b.Effects()
				for _, key := range []string{"g", "b", "c"} {
					require.True(t, slices.IsSorted(inboxtest.OfKey(order, key)), "key %s: %v", key, order)
				}
				require.Less(t, slices.Index(order, "g/5"), slices.Index(order, "b/2"), "other keys go on")
				require.Equal(t, ids, parts.All()[0])
				if named {
					require.Equal(t, without(ids, []string{"b/2", "b/3", "b/4", "b/5"}), parts.All()[1], "what stands before it does, too")
				}
				require.Len(t, b.Failures(), 2)
				require.Empty(t, b.Dead())
			})
		})
	}
}

// As long as nothing fails, a batch is one call and one commit.
// Also covers feature N10.
func TestBatch_needs_one_call_and_one_commit(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.DB.SetMaxOpenConns(1) // G10
		b := newQueueBench(t, database)
		ids := inboxtest.Numbers(30)
		b.Put(ids...)
		var parts inboxtest.Parts
		b.Batch(inboxtest.QuickBatch(func(c *queue.BatchConfig) { c.Worker.Transactional = true }), func(ctx context.Context, messages []*message.Message) error {
			parts.Add(messages)
			return b.BatchEffects(ctx, messages)
		})
		b.Drained()
		require.Equal(t, ids, b.Effects())
		require.Equal(t, [][]string{ids}, parts.All())
		require.Equal(t, 1, b.Commits())
	})
}

// Covers feature W16.
func TestBatch_parts_of_a_batch_that_failed_count_for_the_limits(t *testing.T) {
	t.Parallel()
	b := newQueueBench(t, testdb.SQLite(t))
	const rate, size = 12, 8
	ids := inboxtest.Numbers(4 * size)
	b.Put(ids...)
	var mu sync.Mutex
	var starts []time.Time
	b.Batch(inboxtest.QuickBatch(func(c *queue.BatchConfig) {
		c.Size, c.Worker.Limits.Total.PerSecond = size, rate
	}), func(_ context.Context, messages []*message.Message) error {
		mu.Lock()
		defer mu.Unlock()
		for range messages {
			starts = append(starts, time.Now())
		}
		if inboxtest.OneOf(messages, []string{"005", "020"}) {
			return postbox.Permanent(inboxtest.ErrHandler)
		}
		return nil
	})
	b.Drained()
	require.ElementsMatch(t, []string{"005", "020"}, b.Dead())
	mu.Lock()
	defer mu.Unlock()
	require.Greater(t, len(starts), len(ids)+2*size, "batches were handled in parts")
	for i := range starts {
		for j := i; j < len(starts); j++ {
			allowed := rate*(starts[j].Sub(starts[i]).Seconds()+0.75) + size + 1
			require.LessOrEqual(t, float64(j-i+1), allowed, "from %d to %d", i, j)
		}
	}
}
