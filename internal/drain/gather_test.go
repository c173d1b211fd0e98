package drain_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/schedule"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// collector remembers the batches that it was given.
type collector struct {
	recorder

	mu      sync.Mutex
	batches [][]string
}

func (c *collector) Handle(ctx context.Context, batch []*spool.Message) []spool.Outcome {
	var ids []string
	for _, m := range batch {
		ids = append(ids, m.MessageID)
	}
	c.mu.Lock()
	c.batches = append(c.batches, ids)
	c.mu.Unlock()
	return c.recorder.Handle(ctx, batch)
}

func (c *collector) got() [][]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.batches)
}

// hourly is due at the end of the hour in which a message was stored.
func hourly(stored time.Time) time.Time { return stored.Truncate(time.Hour).Add(time.Hour) }

// store makes messages as old as that.
func (b *bench) store(age time.Duration, list ...spool.Draft) {
	b.T.Helper()
	b.Append(b.Database.DB, list...)
	for _, d := range list {
		b.Database.Exec(b.T, "UPDATE postbox_messages SET created_at = created_at - ? WHERE message_id = ?", age.Microseconds(), []byte(d.MessageID))
	}
}

func gathered(holder string, size int, gather schedule.Gather) drain.Config {
	c := config(holder)
	c.Gather, c.BatchSize, c.Workers, c.Exclusive = &gather, size, 1, !gather.PerKey
	return c
}

// Covers feature N1.
func TestDrainer_collects_batches_by_size_across_lanes(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		handler := &collector{}
		never := func(time.Time) time.Time { return time.Time{} }
		b.Append(database.DB, drafts(25, func(i int) string { return fmt.Sprint(i % 7) })...)
		b.start(database.DB, handler, gathered("one", 10, schedule.Gather{Due: never}))
		b.Eventually(func() bool { return b.Pending() == 5 }, "two batches are full")
		list := drafts(30, func(i int) string { return fmt.Sprint(i % 7) })
		b.Append(database.DB, list[25:29]...)
		b.never(func() bool { return len(handler.got()) > 2 }, 100*time.Millisecond, "nine are none")
		b.Append(database.DB, list[29])
		b.Eventually(func() bool { return b.Pending() == 0 }, "the third is full")
		for i, batch := range handler.got() {
			require.Len(t, batch, 10, "batch %d", i)
			require.True(t, slices.IsSorted(batch), "in the order in which they were stored")
		}
	})
}

// Covers feature N1.
func TestDrainer_a_batch_that_is_due_by_age_takes_younger_messages_along(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		handler := &collector{}
		young := drafts(3, func(i int) string { return fmt.Sprint(i) })
		b.store(0, young...)
		c := gathered("one", 10, schedule.Gather{Due: func(stored time.Time) time.Time { return stored.Add(time.Hour) }})
		b.start(database.DB, handler, c)
		b.never(func() bool { return len(handler.got()) > 0 }, 100*time.Millisecond, "nobody is old enough")
		tx, err := database.DB.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		b.Append(tx, draft("old", "old"))
		_, err = tx.ExecContext(t.Context(), database.Bind("UPDATE postbox_messages SET created_at = created_at - ? WHERE message_id = ?"),
			time.Hour.Microseconds(), []byte("old"))
		require.NoError(t, err)
		require.NoError(t, tx.Commit())
		b.Eventually(func() bool { return b.Pending() == 0 }, "all go with the old one")
		require.Equal(t, [][]string{{"00000", "00001", "00002", "old"}}, handler.got())
	})
}

// Covers feature N1.
func TestDrainer_a_scheduled_batch_takes_only_messages_of_its_period(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		handler := &collector{}
		b.store(time.Hour, drafts(25, func(i int) string { return fmt.Sprint(i % 7) })...)
		b.store(0, draft("next period", "1"), draft("next too", ""))
		c := gathered("one", 10, schedule.Gather{OnlyDue: true, Due: hourly})
		c.PageSize = 10 * lanes
		b.start(database.DB, handler, c)
		b.Eventually(func() bool { return b.Pending() == 2 }, "the period is worked off")
		sizes := []int{}
		for _, batch := range handler.got() {
			sizes = append(sizes, len(batch))
		}
		require.Equal(t, []int{10, 10, 5}, sizes)
		require.NotContains(t, handler.ids(), "next period")
	})
}

// Messages of the next period fill the memory. What of this one has failed is tried again all the
// same. Also covers feature N1.
func TestDrainer_F11_messages_of_the_next_period_do_not_hold_up_a_retry(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		var tries atomic.Int32
		handler := &collector{recorder: recorder{do: func(*spool.Message) error {
			if tries.Add(1) == 1 {
				return postbox.RetryAfter(errTest, time.Hour)
			}
			return nil
		}}}
		c := gathered("one", 10, schedule.Gather{OnlyDue: true, Due: hourly})
		b.store(time.Hour, draft("fails", "key"))
		r := b.start(database.DB, handler, c)
		b.Eventually(func() bool { return database.Count(t, "SELECT COUNT(*) FROM postbox_messages WHERE state = 2") == 1 }, "it has failed")
		b.Append(database.DB, drafts(5*c.PageSize, func(i int) string { return fmt.Sprint(i % 20) })...)
		r.Wake()
		b.never(func() bool { return len(handler.got()) > 1 }, 300*time.Millisecond, "the period has not ended")
		database.Exec(t, "UPDATE postbox_messages SET available_at = 0 WHERE state = 2")
		b.Eventually(func() bool { return b.Pending() == 5*c.PageSize }, "it is tried again")
		require.Equal(t, [][]string{{"fails"}, {"fails"}}, handler.got())
	})
}

// Also covers feature N1.
func TestDrainer_G3_several_processes_take_batches_per_key(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		handlers := make([]*collector, 2)
		gather := schedule.Gather{PerKey: true, Due: func(stored time.Time) time.Time { return stored.Add(time.Hour) }}
		for i := range handlers {
			handlers[i] = &collector{}
			b.start(database.Open(t), handlers[i], gathered(fmt.Sprint(i), 5, gather))
		}
		b.Eventually(func() bool { return b.held("0") == lanes/2 && b.held("1") == lanes/2 }, "they share")
		b.Append(database.DB, drafts(96, func(i int) string { return fmt.Sprint(i % 8) })...)
		b.Eventually(func() bool { return b.Pending() == 8*2 }, "each key has had two batches")
		database.Exec(t, "UPDATE postbox_messages SET created_at = created_at - ?", time.Hour.Microseconds())
		b.say("paused_at = NULL") // they read again
		b.Eventually(func() bool { return b.Pending() == 0 }, "what is left is due")
		for _, handler := range handlers {
			require.NotEmpty(t, handler.got())
			for _, batch := range handler.got() {
				require.Contains(t, []int{5, 2}, len(batch))
				require.True(t, slices.IsSorted(batch))
				for i := 1; i < len(batch); i++ {
					require.Equal(t, number(t, batch[0])%8, number(t, batch[i])%8, "one key")
				}
			}
		}
	})
}

// number returns what [drafts] counted.
func number(t *testing.T, id string) int {
	t.Helper()
	n := 0
	for _, digit := range id {
		require.True(t, digit >= '0' && digit <= '9', id)
		n = 10*n + int(digit-'0')
	}
	return n
}

// A part of a batch fails: that part is tried again, when its time has come, and the rest is done.
// Also covers feature N2.
func TestDrainer_tries_only_the_failed_part_of_a_batch_again(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		var failed sync.Map
		handler := &collector{recorder: recorder{do: func(m *spool.Message) error {
			if m.MessageID[4] == '3' {
				if _, before := failed.LoadOrStore(m.MessageID, true); !before {
					return errTest
				}
			}
			return nil
		}}}
		b.store(time.Hour, drafts(20, func(i int) string { return fmt.Sprint(i) })...)
		b.start(database.DB, handler, gathered("one", 20, schedule.Gather{OnlyDue: true, Due: hourly}))
		b.Eventually(func() bool { return b.Pending() == 0 }, "all are done")
		ids := handler.ids()
		require.Len(t, ids, 20)
		require.Len(t, slices.Compact(slices.Sorted(slices.Values(ids))), 20)
		require.Zero(t, b.Dead())
		require.Equal(t, 2, handler.tried("00003"))
		require.Equal(t, 1, handler.tried("00004"))
	})
}
