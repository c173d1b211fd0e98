package amqpbroker_test

import (
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/brokers/amqpbroker"
)

// BenchmarkPublish shows what a batch is worth: the cost of a call is the round trip.
func BenchmarkPublish(b *testing.B) {
	for _, size := range []int{1, 10, 100} {
		b.Run(strconv.Itoa(size)+" a call", func(b *testing.B) {
			topic := newTopic(b)
			ensureQueue(b, topic)
			publisher := newPublisher(b, amqpbroker.DefaultQueueConfig(amqpURI(b)))
			batch := numbered(size, "")
			require.NoError(b, publisher.Publish(topic, batch...))
			for b.Loop() {
				if err := publisher.Publish(topic, batch...); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N*size)/b.Elapsed().Seconds(), "msg/s")
		})
	}
}

// BenchmarkPublishConcurrently has 64 callers with a message each: they share the connection, not
// the wait.
func BenchmarkPublishConcurrently(b *testing.B) {
	topic := newTopic(b)
	ensureQueue(b, topic)
	publisher := newPublisher(b, amqpbroker.DefaultQueueConfig(amqpURI(b)))
	b.SetParallelism(64 / runtime.GOMAXPROCS(0))
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := publisher.Publish(topic, numbered(1, "")...); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
}
