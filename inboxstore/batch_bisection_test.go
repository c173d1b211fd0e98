package inboxstore_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// numbers returns the ids of so many messages without a key.
func numbers(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("%03d", i)
	}
	return ids
}

// oneOf says whether a batch has one of the culprits.
func oneOf(messages []*message.Message, culprits []string) bool {
	return slices.ContainsFunc(messages, func(msg *message.Message) bool { return slices.Contains(culprits, msg.UUID) })
}

func without(ids, culprits []string) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return slices.Contains(culprits, id) })
}

// Each culprit costs at most two calls for each of the seven times that a hundred can be halved, and then one for each
// attempt that is left. Whoever takes the queue over has its first lane before the others, and perhaps a batch of that.
func TestBatch_N2_culprits_among_a_hundred_are_found(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		culprits []string
		fail     func() // nil: it returns an error
		failure  string // what the failure record says then
	}{
		"one":                          {culprits: []string{"037"}},
		"the first":                    {culprits: []string{"000"}},
		"the last, panics":             {culprits: []string{"099"}, fail: func() { panic("oh no") }, failure: `(?s)^panic: oh no\n.*batch_bisection_test\.go:\d+`},
		"the last, ends its goroutine": {culprits: []string{"099"}, fail: runtime.Goexit, failure: "runtime.Goexit"},
		"several":                      {culprits: []string{"010", "011", "077"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				b := newQueueBench(t, database)
				ids := numbers(100)
				b.put(ids...)
				var parts parts
				b.batch(quickBatch(func(c *inboxstore.BatchConfig) { c.QueueConfig.Transactional = true }), func(ctx context.Context, messages []*message.Message) error {
					parts.add(messages)
					if err := b.batchEffects(ctx, messages); err != nil || !oneOf(messages, test.culprits) {
						return err
					}
					if test.fail != nil {
						test.fail()
					}
					return errHandler
				})
				b.drained()
				require.Equal(t, without(ids, test.culprits), slices.Sorted(slices.Values(b.effects())), "each once")
				require.ElementsMatch(t, test.culprits, b.dead())
				require.Len(t, b.failures(), 3*len(test.culprits), "nobody else has an attempt")
				require.LessOrEqual(t, len(parts.all()), 2+(2*7+2)*len(test.culprits))
				for _, failure := range b.failures() {
					if test.fail != nil {
						require.Regexp(t, test.failure, failure)
					} else {
						require.Equal(t, errHandler.Error(), failure)
					}
				}
			})
		})
	}
}

func TestBatch_N2_all_fail(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		ids := numbers(9)
		b.put(ids...)
		b.batch(quickBatch(nil), func(context.Context, []*message.Message) error { return postbox.Permanent(errHandler) })
		b.drained()
		require.ElementsMatch(t, ids, b.dead())
		require.Len(t, b.failures(), len(ids))
	})
}

// Without a transaction a handler sees messages again, and only the culprit is tried again for its own sake.
func TestBatch_N2_without_a_transaction(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		ids := numbers(16)
		b.put(ids...)
		var good, all parts
		b.batch(quickBatch(nil), func(ctx context.Context, messages []*message.Message) error {
			if _, found := postbox.TxFromContext(ctx); found {
				t.Error("a transaction that nobody asked for")
			}
			all.add(messages)
			if oneOf(messages, []string{"005"}) {
				return errHandler
			}
			good.add(messages)
			return nil
		})
		b.drained()
		require.Equal(t, []string{"005"}, b.dead())
		require.ElementsMatch(t, without(ids, []string{"005"}), slices.Concat(good.all()...), "each is done once")
		require.Len(t, all.all(), 1+2*4+2)
	})
}

// A handler that knows which messages failed spares itself the search.
func TestBatch_N2_BatchError_names_the_culprits(t *testing.T) {
	t.Parallel()
	for _, inTx := range []bool{false, true} {
		t.Run(fmt.Sprintf("in a transaction is %t", inTx), func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				b := newQueueBench(t, database)
				ids, culprits := numbers(20), []string{"003", "017"}
				b.put(ids...)
				var parts parts
				b.batch(quickBatch(func(c *inboxstore.BatchConfig) { c.QueueConfig.Transactional = inTx }), func(ctx context.Context, messages []*message.Message) error {
					parts.add(messages)
					if inTx {
						if err := b.batchEffects(ctx, messages); err != nil {
							return err
						}
					}
					var failed inboxstore.BatchError
					for _, msg := range messages {
						switch msg.UUID {
						case "003":
							failed.Fail(msg, fmt.Errorf("check: %w", errHandler))
						case "017":
							failed.Fail(msg, postbox.Permanent(errHandler))
						default:
							failed.Fail(msg, nil)
						}
					}
					if err := failed.OrNil(); err != nil {
						return fmt.Errorf("handle: %w", err)
					}
					return nil
				})
				b.drained()
				require.ElementsMatch(t, culprits, b.dead())
				require.ElementsMatch(t, []string{"check: " + errHandler.Error(), "check: " + errHandler.Error(), "check: " + errHandler.Error(), errHandler.Error()}, b.failures())
				want := [][]string{ids, {"003"}, {"003"}}
				if inTx {
					want = [][]string{ids, without(ids, culprits), {"003"}, {"003"}}
					require.ElementsMatch(t, without(ids, culprits), b.effects())
				}
				require.Equal(t, want, parts.all())
			})
		})
	}
}

// A BatchError of which no message is in the batch says nothing about it.
func TestBatch_N2_BatchError_about_others_is_an_error_like_any_other(t *testing.T) {
	t.Parallel()
	b := newQueueBench(t, testdb.SQLite(t))
	b.put(numbers(4)...)
	b.batch(quickBatch(nil), func(_ context.Context, messages []*message.Message) error {
		if !oneOf(messages, []string{"002"}) {
			return nil
		}
		var failed inboxstore.BatchError
		failed.Fail(messages[0].Copy(), errHandler)
		return failed.OrNil()
	})
	b.drained()
	require.Equal(t, []string{"002"}, b.dead())
	require.Contains(t, b.failures()[0], "1 messages of the batch failed; 002: "+errHandler.Error())
}

func TestBatchError_text_and_nil(t *testing.T) {
	t.Parallel()
	var failed inboxstore.BatchError
	require.NoError(t, failed.OrNil())
	msg := message.NewMessage("1", nil)
	failed.Fail(msg, nil)
	require.NoError(t, failed.OrNil())
	failed.Fail(msg, errors.New("one"))
	failed.Fail(msg, errors.New("two"))
	require.EqualError(t, failed.OrNil(), "1 messages of the batch failed; 1: two")
	for i := range 20 {
		failed.Fail(message.NewMessage(fmt.Sprint("other ", i), nil), errHandler)
	}
	require.ErrorContains(t, failed.OrNil(), "21 messages of the batch failed; 1: two; other 0: ")
	require.ErrorContains(t, failed.OrNil(), "other 8: handler says no, …")
	require.NotContains(t, failed.OrNil().Error(), "other 9")
}

// What stands behind a culprit of its key waits until that is done or dead; other keys do not.
func TestBatch_N2_G3_N1_key_of_a_culprit_waits(t *testing.T) {
	t.Parallel()
	for _, named := range []bool{false, true} {
		t.Run(fmt.Sprintf("the culprit is named is %t", named), func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				b := newQueueBench(t, database)
				ids := keysOf(6, "g", "b", "c")
				b.put(ids...)
				var rounds journal
				var parts parts
				b.batch(quickBatch(func(c *inboxstore.BatchConfig) { c.QueueConfig.Transactional = true }), func(ctx context.Context, messages []*message.Message) error {
					parts.add(messages)
					if err := b.batchEffects(ctx, messages); err != nil {
						return err
					}
					for _, msg := range messages {
						if msg.UUID != "b/2" || rounds.times("alone") == 2 {
							continue
						}
						if len(messages) == 1 || named {
							rounds.add("alone")
						}
						if named {
							var failed inboxstore.BatchError
							failed.Fail(msg, errHandler)
							return failed.OrNil()
						}
						return errHandler
					}
					return nil
				})
				b.drained()
				require.ElementsMatch(t, ids, b.effects(), "each once")
				order := b.effects()
				for _, key := range []string{"g", "b", "c"} {
					require.True(t, slices.IsSorted(ofKey(order, key)), "key %s: %v", key, order)
				}
				require.Less(t, slices.Index(order, "g/5"), slices.Index(order, "b/2"), "other keys go on")
				require.Equal(t, ids, parts.all()[0])
				if named {
					require.Equal(t, without(ids, []string{"b/2", "b/3", "b/4", "b/5"}), parts.all()[1], "what stands before it does, too")
				}
				require.Len(t, b.failures(), 2)
				require.Empty(t, b.dead())
			})
		})
	}
}

// As long as nothing fails, a batch is one call and one commit.
func TestBatch_N10_one_commit(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.DB.SetMaxOpenConns(1) // G10
		b := newQueueBench(t, database)
		ids := numbers(30)
		b.put(ids...)
		var parts parts
		b.batch(quickBatch(func(c *inboxstore.BatchConfig) { c.QueueConfig.Transactional = true }), func(ctx context.Context, messages []*message.Message) error {
			parts.add(messages)
			return b.batchEffects(ctx, messages)
		})
		b.drained()
		require.Equal(t, ids, b.effects())
		require.Equal(t, [][]string{ids}, parts.all())
		require.Equal(t, 1, b.commits())
	})
}
