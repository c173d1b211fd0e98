package queue_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/queue"
)

const second = int(time.Second / time.Microsecond)

// calls remembers in which call each message was handled.
type calls struct {
	mu     sync.Mutex
	number int
	of     map[string][]int
}

func (c *calls) handle(_ context.Context, messages []*message.Message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.number++
	for _, msg := range messages {
		c.of[msg.UUID] = append(c.of[msg.UUID], c.number)
	}
	return nil
}

func (c *calls) made() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.number
}

// Messages come one by one while the batch waits for its time. All that are committed within one
// second come in one call: their number is far below Size.
func TestBatch_schedule_hands_out_all_of_its_time_in_one_call(t *testing.T) {
	t.Parallel()
	for _, perKey := range []bool{false, true} {
		testdb.Each(t, func(t *testing.T, database *testdb.Database) {
			b := newQueueBench(t, database)
			calls := &calls{of: map[string][]int{}}
			b.Batch(inboxtest.QuickBatch(func(c *queue.BatchConfig) {
				c.Age, c.Schedule, c.PerKey, c.Size, c.Worker.PageSize = 0, "* * * * * *", perKey, 1000, 1000
				c.Worker.PollMax = time.Second
			}), calls.handle)
			keys := 20
			if perKey {
				keys = 1
			}
			of := map[int][]string{} // of a second
			pace := time.NewTicker(10 * time.Millisecond)
			defer pace.Stop()
			for i := 0; len(of) < 5 || calls.made() < 3; i++ {
				<-pace.C
				id := fmt.Sprintf("%d/%d", i%keys, i)
				before := b.now() / second
				b.Put(id)
				if b.now()/second == before {
					of[before] = append(of[before], id)
				}
			}
			b.Drained()
			for at, ids := range of {
				first := calls.of[ids[0]]
				require.Len(t, first, 1)
				for _, id := range ids {
					require.Equal(t, first, calls.of[id], "%s of the %d messages of second %d, of which the first is %s", id, len(ids), at, ids[0])
				}
			}
		})
	}
}

// A transaction is open at the scheduled time. What it has stored before is not cut off.
func TestBatch_schedule_takes_what_is_committed_just_after_its_time(t *testing.T) {
	t.Parallel()
	for _, open := range []func(*testing.T) *testdb.Database{testdb.Postgres, testdb.MySQL} {
		b := newQueueBench(t, open(t))
		calls := &calls{of: map[string][]int{}}
		b.Batch(inboxtest.QuickBatch(func(c *queue.BatchConfig) { c.Age, c.Schedule = 0, "* * * * * *" }), calls.handle)
		for try := 0; ; try++ {
			require.Less(t, try, 20, "this machine is too slow")
			committed, open := fmt.Sprintf("committed/%d", try), fmt.Sprintf("open/%d", try)
			began := b.now() / second
			b.Put(committed)
			tx, err := b.DB.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			_, err = b.Store.Defer(postbox.ContextWithTx(t.Context(), tx), "q", inboxstore.Key{Consumer: "q", MessageID: open}, inboxtest.Keyed(open))
			require.NoError(t, err)
			stored := b.now() / second
			b.Eventually(func() bool { return b.now()/second > stored }, "the second is over")
			require.NoError(t, tx.Commit())
			if late := b.now() - (stored+1)*second; stored == began && late < second/2 {
				b.Drained()
				require.Equal(t, calls.of[committed], calls.of[open], "it was committed %d µs after its time", late)
				break
			}
		}
	}
}

// lastly remembers which calls were the last ones of their time.
type lastly struct {
	inboxtest.Parts

	mu   sync.Mutex
	last []bool
}

func (l *lastly) add(ctx context.Context, messages []*message.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Add(messages)
	l.last = append(l.last, queue.LastBatch(ctx))
}

// A time that has passed is made up for: in as few calls as Size allows, and the handler knows the
// last one.
func TestBatch_schedule_tells_the_last_call_of_its_time(t *testing.T) {
	t.Parallel()
	for name, transactional := range map[string]bool{"in a transaction": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				b := newQueueBench(t, database)
				ids := keysOf(5, "a", "b", "c", "d", "e")
				b.Put(ids[:20]...)
				b.age(400 * 24 * time.Hour)
				b.Put(ids[20:]...)
				seen := &lastly{}
				b.Batch(inboxtest.QuickBatch(func(c *queue.BatchConfig) {
					c.Age, c.Schedule, c.Size, c.Worker.Transactional = 0, "@yearly", 5, transactional
					c.Worker.PageSize = 5
				}), func(ctx context.Context, messages []*message.Message) error {
					seen.add(ctx, messages)
					return nil
				})
				b.Eventually(func() bool { return b.Pending() == 5 }, "what is old is handled")
				require.Equal(t, [][]string{ids[:5], ids[5:10], ids[10:15], ids[15:20]}, seen.All())
				require.Equal(t, []bool{false, false, false, true}, seen.last)
			})
		})
	}
}

// A batch that fails is halved. Of the halves, the last one is last.
func TestBatch_schedule_tells_the_last_call_although_some_fail(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		ids := keysOf(1, "a", "b", "c", "d")
		b.Put(ids...)
		b.age(400 * 24 * time.Hour)
		seen := &lastly{}
		b.Batch(inboxtest.QuickBatch(func(c *queue.BatchConfig) { c.Age, c.Schedule = 0, "@yearly" }), func(ctx context.Context, messages []*message.Message) error {
			seen.add(ctx, messages)
			if slices.ContainsFunc(messages, func(m *message.Message) bool { return m.UUID == ids[1] }) {
				return postbox.Permanent(inboxtest.ErrHandler)
			}
			return nil
		})
		b.Drained()
		require.Equal(t, []string{ids[1]}, b.Dead())
		require.Equal(t, [][]string{ids, ids[:2], ids[:1], ids[1:2], ids[2:]}, seen.All())
		require.Equal(t, []bool{true, false, false, false, true}, seen.last)
	})
}

// Without a schedule there is always another batch.
func TestBatch_without_a_schedule_has_no_last_call(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		b.Put(keysOf(1, "a", "b", "c", "d")...)
		seen := &lastly{}
		b.Batch(inboxtest.QuickBatch(func(c *queue.BatchConfig) { c.Size = 2 }), func(ctx context.Context, messages []*message.Message) error {
			seen.add(ctx, messages)
			return nil
		})
		b.Drained()
		require.NotContains(t, seen.last, true)
	})
}

// More messages than the memory holds wait for a delay that ends between two scheduled times. They
// go out at their own time, and the missed ones beside them.
func TestBatch_schedule_leaves_delayed_messages_their_own_time(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		missed, delayed, ready := numbered("missed", 90), numbered("delayed", 90), numbered("ready", 2)
		b.Put(missed...)
		b.age(400 * 24 * time.Hour)
		putDelayed(b, delayed...)
		b.Put(ready...)
		seen := &lastly{}
		b.Batch(inboxtest.QuickBatch(func(c *queue.BatchConfig) {
			c.Age, c.Schedule, c.Size, c.Worker.PageSize = 0, "@yearly", 10, 20
		}), func(ctx context.Context, messages []*message.Message) error {
			seen.add(ctx, messages)
			return nil
		})
		b.Eventually(func() bool { return b.Pending() == len(ready) }, "only the ready ones wait for the schedule")
		require.ElementsMatch(t, slices.Concat(missed, delayed), slices.Concat(seen.All()...))
		require.True(t, seen.last[len(seen.last)-1], "the last call")
	})
}

// Messages of the same lanes wait for the schedule, before and after delayed ones with keys.
func TestBatch_schedule_leaves_delayed_messages_with_keys_their_own_time(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		delayed := []string{"a/delayed", "b/delayed", "c/delayed"}
		before, after := keysOf(2, "a", "b", "c", "d"), []string{"a/after", "e/after"}
		b.Put(before...)
		putWithDelay(b, inboxtest.Keyed, delayed...)
		b.Put(after...)
		seen := &lastly{}
		b.Batch(inboxtest.QuickBatch(func(c *queue.BatchConfig) { c.Age, c.Schedule = 0, "@yearly" }), func(ctx context.Context, messages []*message.Message) error {
			seen.add(ctx, messages)
			return nil
		})
		b.Eventually(func() bool { return b.Pending() == len(before)+len(after) }, "the others wait for the schedule")
		putWithDelay(b, inboxtest.Keyed, "a/late", "b/late")
		b.Eventually(func() bool { return b.Pending() == len(before)+len(after) }, "so it is when reads have found these")
		require.ElementsMatch(t, append(delayed, "a/late", "b/late"), slices.Concat(seen.All()...))
	})
}

// All of them are due at once, and more than a read returns.
func TestBatch_schedule_tells_the_last_call_of_many_delayed_messages(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		putDelayed(b, numbered("delayed", 300)...)
		seen := &lastly{}
		b.Batch(inboxtest.QuickBatch(func(c *queue.BatchConfig) {
			c.Age, c.Schedule, c.Size, c.Worker.PageSize = 0, "@yearly", 250, 300
		}), func(ctx context.Context, messages []*message.Message) error {
			seen.add(ctx, messages)
			return nil
		})
		b.Drained()
		var sizes []int
		for _, call := range seen.All() {
			sizes = append(sizes, len(call))
		}
		require.Equal(t, []int{250, 50}, sizes)
		require.Equal(t, []bool{false, true}, seen.last)
	})
}

func numbered(name string, n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprintf("%s/%d", name, i))
	}
	return ids
}
