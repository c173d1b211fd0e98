package inboxstore_test

import (
	"context"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// BenchmarkDefer bounds what a commit costs a delivery: all of it when deliveries come one after
// the other, a part of it when 64 come at a time.
func BenchmarkDefer(b *testing.B) {
	testdb.EachBenchmark(b, func(b *testing.B, database *testdb.Database) { //nolint:thelper // the body of a benchmark
		database.Migrate(b)
		store, err := inboxstore.New(database.Postbox(), inboxstore.Config{}, nil)
		require.NoError(b, err)
		defer func() { require.NoError(b, store.Close()) }()
		payload := make([]byte, 500)
		deliver := func(ctx context.Context) error {
			msg := message.NewMessage(postbox.NewMessageID(), payload)
			_, err := store.Defer(ctx, "queue", inboxstore.Key{Consumer: "queue", MessageID: msg.UUID}, msg)
			return err
		}
		require.NoError(b, deliver(b.Context()))
		b.Run("sequential", func(b *testing.B) {
			for range b.N {
				if err := deliver(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
		})
		b.Run("64 concurrent", func(b *testing.B) {
			b.SetParallelism(64 / runtime.GOMAXPROCS(0))
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := deliver(b.Context()); err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
		})
	})
}

// BenchmarkOnce bounds what an effect once costs: the claim, in a transaction whose handler does
// nothing.
func BenchmarkOnce(b *testing.B) {
	testdb.EachBenchmark(b, func(b *testing.B, database *testdb.Database) { //nolint:thelper // the body of a benchmark
		database.Migrate(b)
		store, err := inboxstore.New(database.Postbox(), inboxstore.Config{}, nil)
		require.NoError(b, err)
		defer func() { require.NoError(b, store.Close()) }()
		once := func(ctx context.Context, id string) {
			key := inboxstore.Key{Consumer: "consumer", Topic: "topic", MessageID: id}
			if _, err := store.Once(ctx, key, func(context.Context) error { return nil }); err != nil {
				b.Fatal(err)
			}
		}
		b.Run("fresh", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				once(b.Context(), postbox.NewMessageID())
			}
		})
		b.Run("duplicate", func(b *testing.B) {
			id := postbox.NewMessageID()
			b.ReportAllocs()
			for b.Loop() {
				once(b.Context(), id)
			}
		})
	})
}
