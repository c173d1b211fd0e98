package minutes_test

import (
	"testing"

	"github.com/postbox-go/watermill-postbox/internal/instruments"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/metrics/minutes"
)

// What a message costs that is stored, handled and done in parts of a hundred.
func BenchmarkRecorder(b *testing.B) {
	r, err := minutes.New(testdb.SQLiteBenchmark(b).Postbox(), minutes.Config{}, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = r.Close() }) // there are no tables
	const part = 100
	stored, done := r.Series(instruments.Stored, "outbox", "outbox", "orders"), r.Series(instruments.Ended, "outbox", "outbox", "orders", "done")
	waits := r.Series(instruments.Latency, "outbox", "outbox", "orders")
	calls := r.Series(instruments.Published, "postbox", "publish", "orders", "", "outbox", "outbox")
	latencies := make([]float64, part)
	for i := range latencies {
		latencies[i] = float64(i) / part
	}
	for b.Loop() {
		stored.Record(part)
		waits.RecordAll(latencies)
		done.Record(part)
		calls.Record(0.01)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/part, "ns/message")
}
