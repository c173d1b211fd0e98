package queue_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/queue"
)

// Covers feature 0.5.
func TestBatch_is_handed_out_when_it_is_full(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		ids := keysOf(3, "a", "b", "c", "d", "e")
		b.Put(ids[:12]...)
		var parts inboxtest.Parts
		b.Batch(inboxtest.QuickBatch(func(c *queue.BatchConfig) { c.Size, c.Age, c.Worker.Lease = 5, 0, time.Second }), func(_ context.Context, messages []*message.Message) error {
			parts.Add(messages)
			return nil
		})
		b.Eventually(func() bool { return b.Pending() == 2 }, "what is left is too little")
		b.Renewed(1)
		require.Equal(t, [][]string{ids[:5], ids[5:10]}, parts.All(), "oldest first")
		b.Put(ids[12:]...)
		b.Drained()
		require.Equal(t, ids[10:], parts.All()[2])
	})
}

// The oldest message has waited long enough by the database's clock, and takes the others along.
// Also covers feature 0.5.
func TestBatch_G11_is_handed_out_when_its_oldest_message_is_old_enough(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		b.Put("b/0")
		b.age(time.Hour)
		b.Put("c/0", "b/1")
		var parts inboxtest.Parts
		handle := func(_ context.Context, messages []*message.Message) error {
			parts.Add(messages)
			return nil
		}
		p := b.Batch(inboxtest.QuickBatch(func(c *queue.BatchConfig) { c.Age = time.Hour }), handle)
		b.Drained()
		require.Equal(t, [][]string{{"b/0", "c/0", "b/1"}}, parts.All())

		b.Put("c/1")
		b.Eventually(func() bool { return b.Count(t, "SELECT COUNT(*) FROM postbox_lanes WHERE holder IS NULL") == 0 }, "all lanes are held")
		b.Renewed(1)
		require.Len(t, parts.All(), 1, "it waits for an hour")
		require.NoError(t, p.Close())

		const age = 400 * time.Millisecond
		late := make(chan int, 1)
		b.Exec(t, "DELETE FROM postbox_messages")
		b.Batch(inboxtest.QuickBatch(func(c *queue.BatchConfig) { c.Age = age }), func(_ context.Context, messages []*message.Message) error {
			late <- b.now() - b.createdAt(messages[0].UUID)
			return nil
		})
		b.Put("d/0")
		require.GreaterOrEqual(t, <-late, int(age.Microseconds()))
	})
}

// Each second ends a period: what was stored in it comes after its end.
// Also covers feature 0.5.
func TestBatch_schedule_takes_messages_that_were_stored_before_its_time(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		const second = int(time.Second / time.Microsecond)
		b := newQueueBench(t, database)
		batches := make(chan struct{}, 100)
		b.Batch(inboxtest.QuickBatch(func(c *queue.BatchConfig) { c.Age, c.Schedule = 0, "* * * * * *" }), func(_ context.Context, messages []*message.Message) error {
			end := b.now() / second * second
			if late := b.createdAt(messages[len(messages)-1].UUID); late >= end {
				t.Errorf("stored at %d, before whose end it is still %d", late, end)
			}
			batches <- struct{}{}
			return nil
		})
		ticker := time.NewTicker(40 * time.Millisecond)
		defer ticker.Stop()
		for i := 0; len(batches) < 3; i++ {
			<-ticker.C
			b.Put(fmt.Sprintf("%d/%d", i%7, i))
		}
		b.Drained()
	})
}

// A time that passed while nobody ran is made up for, for what was stored until then.
// Also covers feature 0.5.
func TestBatch_schedule_catches_up_after_a_missed_time(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		old := keysOf(3, "a", "b")
		b.Put(old...)
		b.age(400 * 24 * time.Hour)
		b.Put("a/9", "c/0")
		var parts inboxtest.Parts
		b.Batch(inboxtest.QuickBatch(func(c *queue.BatchConfig) {
			c.Age, c.Schedule, c.Size, c.Worker.Lease = 0, "@yearly", 4, time.Second
			c.Worker.PageSize = 4 // messages that are not due do not fill the memory
		}), func(_ context.Context, messages []*message.Message) error {
			parts.Add(messages)
			return nil
		})
		b.Eventually(func() bool { return b.Pending() == 2 }, "what is old is handled")
		b.Renewed(1)
		require.ElementsMatch(t, old, slices.Concat(parts.All()...))
		require.Equal(t, 2, b.Untried())
	})
}

// Covers feature N1.
func TestBatch_per_key_has_messages_of_one_key(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		ids := append(keysOf(5, "a", "b"), "c/0", "7", "8")
		b.Put(ids...)
		b.age(time.Hour)
		var parts inboxtest.Parts
		var busy busy
		config := inboxtest.QuickBatch(func(c *queue.BatchConfig) {
			c.PerKey, c.Size, c.Age, c.Worker.Concurrency = true, 3, time.Minute, 4
		})
		handle := func(_ context.Context, messages []*message.Message) error {
			batch, _ := parts.Add(messages)
			key, _, _ := strings.Cut(batch[0], "/")
			defer busy.enter(key)()
			return nil
		}
		b.Batch(config, handle)
		b.another().Batch(config, handle) // keys are shared out
		b.Drained()
		require.ElementsMatch(t, [][]string{
			{"a/0", "a/1", "a/2"}, {"a/3", "a/4"}, {"b/0", "b/1", "b/2"}, {"b/3", "b/4"}, {"c/0"}, {"7"}, {"8"},
		}, parts.All())
		require.Empty(t, busy.two)

		b.Put(keysOf(3, "d")...)
		b.Put("e/0", "e/1")
		b.Eventually(func() bool { return b.Pending() == 2 }, "a full batch need not be old")
		require.Equal(t, []string{"d/0", "d/1", "d/2"}, parts.All()[7])
	})
}

// age makes the messages that are stored by now older.
func (b *queueBench) age(by time.Duration) {
	b.T.Helper()
	b.Exec(b.T, "UPDATE postbox_messages SET created_at = created_at - ?", by.Microseconds())
}

// now is the time by the database's clock, in microseconds.
func (b *queueBench) now() int {
	b.T.Helper()
	return b.Count(b.T, map[postbox.Dialect]string{
		postbox.PostgreSQL: "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
		postbox.MySQL:      "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))",
		postbox.SQLite:     "SELECT CAST(unixepoch('subsec') * 1000000 AS INTEGER)",
	}[b.Dialect])
}

// createdAt is when a message was stored.
func (b *queueBench) createdAt(id string) int {
	b.T.Helper()
	return b.Count(b.T, "SELECT created_at FROM postbox_messages WHERE topic = 'q' AND message_id = ?", []byte(id))
}
