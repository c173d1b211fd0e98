package queue_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/queue"
)

// BenchmarkQueue bounds what a queue itself costs a message: it is worked off, with default
// settings, by handlers that do nothing, and in micro-batches, which have a transaction.
func BenchmarkQueue(b *testing.B) {
	testdb.EachBenchmark(b, func(b *testing.B, database *testdb.Database) { //nolint:thelper // the body of a benchmark
		database.Migrate(b)
		for name, config := range map[string]queue.Config{"default": {}, "micro-batches": {MicroBatch: 100, Concurrency: 1}} {
			b.Run(name, func(b *testing.B) { benchmarkQueue(b, database, name, config) })
		}
	})
}

func benchmarkQueue(b *testing.B, database *testdb.Database, name string, config queue.Config) {
	b.Helper()
	store, err := inboxstore.New(database.Postbox(), inboxstore.Config{}, nil)
	require.NoError(b, err)
	var storing errgroup.Group
	storing.SetLimit(256) // they share commits
	for range b.N {
		storing.Go(func() error {
			msg := message.NewMessage(postbox.NewMessageID(), make([]byte, 256))
			_, err := store.Defer(b.Context(), name, inboxstore.Key{Consumer: name, MessageID: msg.UUID}, msg)
			return err
		})
	}
	require.NoError(b, storing.Wait())
	subscriber, err := queue.NewSubscriber(store, config, nil)
	require.NoError(b, err)
	b.ReportAllocs()
	b.ResetTimer()
	messages, err := subscriber.Subscribe(b.Context(), name)
	require.NoError(b, err)
	for range b.N {
		msg := <-messages
		msg.Ack()
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
	require.NoError(b, subscriber.Close())
	require.NoError(b, store.Close())
}
