package queue_test

import (
	"context"
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

func nothing(context.Context, []*message.Message) error { return nil }

func TestBatch_G12_runs_once_and_closes_as_often_as_you_like(t *testing.T) {
	t.Parallel()
	b := newQueueBench(t, testdb.SQLite(t))
	b.Put("1")
	p := b.Batch(inboxtest.QuickBatch(nil), nothing)
	b.Await(p.Running(), "the first look")
	require.ErrorContains(t, p.Run(t.Context()), `batch of queue "q" is already running`)
	b.Drained()
	for range 2 {
		require.NoError(t, p.Close())
	}
	require.ErrorIs(t, p.Run(t.Context()), postbox.ErrClosed)

	unused, err := queue.NewBatch(b.Store, "q", nothing, queue.BatchConfig{}, nil)
	require.NoError(t, err)
	for range 2 {
		require.NoError(t, unused.Close())
	}
	require.ErrorIs(t, unused.Run(t.Context()), postbox.ErrClosed)
}

func TestBatch_G12_run_ends_with_its_context(t *testing.T) {
	t.Parallel()
	b := newQueueBench(t, testdb.SQLite(t))
	batch, err := queue.NewBatch(b.Store, "q", nothing, inboxtest.QuickBatch(nil), nil)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- batch.Run(ctx) }()
	b.Await(batch.Running(), "the first look")
	cancel()
	require.NoError(t, <-done)
	require.NoError(t, batch.Close())
	require.Zero(t, b.Count(t, "SELECT COUNT(*) FROM postbox_lanes WHERE holder IS NOT NULL"))
}

// Also covers F1.
func TestBatch_G12_close_waits_for_the_handler_and_then_cancels_it(t *testing.T) {
	t.Parallel()
	for name, timeout := range map[string]time.Duration{"in time": time.Minute, "too late": 100 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				b := newQueueBench(t, database)
				b.Put("b/1", "b/2", "c/1")
				b.Store = inboxtest.StoreFor(t, database, b.Pool, func(c *inboxstore.Config) { c.CloseTimeout = timeout })
				entered, proceed := make(chan struct{}), make(chan struct{})
				p := b.Batch(inboxtest.QuickBatch(func(c *queue.BatchConfig) { c.Worker.Lease = time.Second }), func(ctx context.Context, _ []*message.Message) error {
					close(entered)
					return inboxtest.Hold(ctx, proceed)
				})
				b.Await(entered, "the handler")
				closed := make(chan struct{})
				go func() {
					defer close(closed)
					_ = p.Close()
				}()
				if timeout == time.Minute {
					b.Renewed(2)
					close(proceed)
				}
				b.Await(closed, "the end")
				if timeout == time.Minute {
					require.Zero(t, b.Pending())
				} else {
					require.Equal(t, 3, b.Untried())
				}
				require.Empty(t, b.Failures())
			})
		})
	}
}

func TestBatch_handler_timeout_cancels_the_context_and_waits(t *testing.T) {
	t.Parallel()
	b := newQueueBench(t, testdb.SQLite(t))
	b.Put("a/1", "a/2")
	var parts inboxtest.Parts
	b.Batch(inboxtest.QuickBatch(func(*queue.BatchConfig) {}), func(ctx context.Context, messages []*message.Message) error {
		ctx, end := context.WithTimeout(ctx, 20*time.Millisecond)
		defer end()
		if _, call := parts.Add(messages); call > 1 {
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	})
	b.Drained()
	require.Equal(t, [][]string{{"a/1", "a/2"}, {"a/1"}, {"a/2"}}, parts.All())
	require.Empty(t, b.Failures(), "of neither of the two is it known")
}

func TestBatch_cannot_run_without_tables(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	batch, err := queue.NewBatch(inboxtest.StoreFor(t, database, database.DB, nil), "q", nothing, inboxtest.QuickBatch(nil), nil)
	require.NoError(t, err)
	require.ErrorContains(t, batch.Run(t.Context()), "postbox.Migrate")
	require.NoError(t, batch.Close())
}

func TestBatch_bad_input_says_what_to_do(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	store := inboxtest.StoreFor(t, database, database.DB, nil)
	_, err := queue.NewBatch(nil, "q", nothing, queue.BatchConfig{}, nil)
	require.Error(t, err)
	_, err = queue.NewBatch(store, "q", nil, queue.BatchConfig{}, nil)
	require.Error(t, err)
	for want, config := range map[string]queue.BatchConfig{
		"Size: -1": {Size: -1},
		"Size: 9 is not between 1 and PageSize, 5": {Size: 9, Worker: queue.Config{Tuning: postbox.Tuning{PageSize: 5}}},
		"Age: -1s":                                   {Age: -time.Second},
		"Age and Schedule":                           {Age: time.Second, Schedule: "@daily"},
		"PerKey: set Age or Schedule":                {PerKey: true},
		"Unordered and MicroBatch":                   {Worker: queue.Config{MicroBatch: 2}},
		"for a Subscriber":                           {Worker: queue.Config{Unordered: true}},
		`Schedule: "at midnight" is not a cron`:      {Schedule: "at midnight"},
		`Schedule: "0 0 30 2 *" never comes`:         {Schedule: "0 0 30 2 *"},
		`Schedule: "@every 1h" names no fixed times`: {Schedule: "@every 1h"},
		"Concurrency: -1":                            {Worker: queue.Config{Concurrency: -1}},
	} {
		_, err := queue.NewBatch(store, "q", nothing, config, nil)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "queue batch: invalid config")
	}
	all := queue.BatchConfig{Size: -1, Age: -1, Schedule: "?", PerKey: true, Worker: queue.Config{Tuning: postbox.Tuning{Lease: 1}}}
	_, err = queue.NewBatch(store, "q", nothing, all, nil)
	for _, want := range []string{"Size", "Age", "Schedule", "Lease"} {
		require.ErrorContains(t, err, want, "all at once")
	}
}
