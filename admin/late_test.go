package admin_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/queue"
)

// age makes all messages of a bench so much older.
func age(b *inboxtest.Bench, by time.Duration) {
	b.T.Helper()
	b.Exec(b.T, "UPDATE postbox_messages SET created_at = created_at - ?", by.Microseconds())
}

// Messages wait for a time that has not come: nothing is late, also after the process has stopped.
// When it has passed, they are late from then on, and not since they were stored.
func TestBatch_is_late_from_its_time_on(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		config       func(*queue.BatchConfig)
		stored, late time.Duration // how long ago
	}{
		"a schedule that has not come":     {func(c *queue.BatchConfig) { c.Schedule = "0 0 1 1 *" }, 0, 0},
		"a schedule in a zone":             {func(c *queue.BatchConfig) { c.Schedule, c.TimeZone = "@yearly", time.FixedZone("away", 3600) }, 0, 0},
		"an age that has not come":         {func(c *queue.BatchConfig) { c.Age = 2 * time.Hour }, time.Hour, 0},
		"an age that has passed":           {func(c *queue.BatchConfig) { c.Age = 2 * time.Hour }, 5 * time.Hour, 3 * time.Hour},
		"a size counts from the beginning": {func(*queue.BatchConfig) {}, 5 * time.Hour, 5 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				b := inboxtest.New(t, database)
				p := b.Batch(inboxtest.QuickBatch(func(c *queue.BatchConfig) {
					c.Age, c.Worker.PollMax = 0, time.Hour
					test.config(c)
				}), func(context.Context, []*message.Message) error { return nil })
				b.Await(p.Running(), "it runs")
				require.NoError(t, p.Close())
				b.Put("a/0", "b/0")
				age(b, test.stored)
				operator, err := admin.New(database.On(database.DB), admin.Config{}, nil)
				require.NoError(t, err)
				found, err := operator.Queues(t.Context())
				require.NoError(t, err)
				require.Len(t, found, 1)
				require.InDelta(t, test.late.Seconds(), found[0].DueAge.Seconds(), time.Minute.Seconds())
				due := 2
				if test.late == 0 {
					require.Zero(t, found[0].DueAge)
					due = 0
				}
				require.Equal(t, due, found[0].Due)
				require.Equal(t, 2, found[0].Pending)
			})
		})
	}
}

// A batch becomes a queue of single messages: these are due at once.
func TestBatch_that_is_a_subscriber_now_has_no_time(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := inboxtest.New(t, database)
		never := func(context.Context, []*message.Message) error { return nil }
		p := b.Batch(inboxtest.QuickBatch(func(c *queue.BatchConfig) { c.Age, c.Schedule = 0, "@yearly" }), never)
		b.Await(p.Running(), "it runs")
		require.NoError(t, p.Close())
		b.Put("a/0")
		age(b, time.Hour)
		hold := make(chan struct{})
		defer close(hold)
		taken := make(chan struct{}, 1)
		b.Start(inboxtest.Quick(nil), func(msg *message.Message) error {
			taken <- struct{}{}
			return inboxtest.Hold(msg.Context(), hold)
		})
		b.Await(taken, "it is handled at once")
		operator, err := admin.New(database.On(database.DB), admin.Config{}, nil)
		require.NoError(t, err)
		found, err := operator.Queues(t.Context())
		require.NoError(t, err)
		require.InDelta(t, time.Hour.Seconds(), found[0].DueAge.Seconds(), time.Minute.Seconds())
	})
}
