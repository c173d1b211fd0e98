package admin_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/dashboardtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/metrics"
)

// BenchmarkCounts measures what the counts of operators and a scrape cost with a long backlog, see [dashboardtest.BacklogRows]. Run it alone:
// -benchtime=50x.
func BenchmarkCounts(b *testing.B) {
	testdb.EachBenchmark(b, func(b *testing.B, database *testdb.Database) {
		b.Helper()
		backlog := dashboardtest.NewBenchBacklog(b, database)
		b.Run("queues", func(b *testing.B) {
			backlog.Timed(b, func() { backlog.Queue(b) })
		})
		b.Run("measure", func(b *testing.B) {
			ignore := metrics.RecorderFunc(func(*metrics.Instrument, float64, ...string) {})
			backlog.Timed(b, func() { require.NoError(b, backlog.Admin.Measure(b.Context(), ignore)) })
		})
	})
}
