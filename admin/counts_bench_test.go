package admin_test

import (
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/cleanup"
	"github.com/postbox-go/watermill-postbox/internal/counts"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/metrics"
)

// benchPart is the number of rows that one statement writes for a benchmark.
const benchPart = 100_000

// fillOutbox stores that many ready messages, with keys of all lanes: the digits of a number come from a table with ten rows.
const fillOutbox = `
INSERT INTO postbox_messages (available_at, created_at, spool, state, lane, topic, message_id, payload, metadata)
WITH d (n) AS (SELECT 0 UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5 UNION ALL SELECT 6
	UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)
SELECT 0, ?, ?, 0, (a.n + 10 * b.n + 100 * c.n + 1000 * e.n + 10000 * f.n) % ?, 'orders', 'an id of a message', '{"order":4711}', '{}'
FROM d a CROSS JOIN d b CROSS JOIN d c CROSS JOIN d e CROSS JOIN d f`

// BenchmarkCounts measures what an operator's page and a scrape cost with a long backlog. POSTBOX_BENCH_ROWS is its length, a multiple of
// 100,000 (default 100,000). Run it alone: -benchtime=50x. The count itself, which one process at a time makes, is
// reported as ms/count.
func BenchmarkCounts(b *testing.B) {
	rows := benchPart
	if text := os.Getenv("POSTBOX_BENCH_ROWS"); text != "" {
		var err error
		rows, err = strconv.Atoi(text)
		require.NoError(b, err)
	}
	testdb.EachBenchmark(b, func(b *testing.B, database *testdb.Database) {
		b.Helper()
		database.Migrate(b)
		statements, err := spool.StatementsIn(database.Postbox())
		require.NoError(b, err)
		outbox := spool.New(statements, "outbox", 16)
		id, err := outbox.Open(b.Context(), database.DB)
		require.NoError(b, err)
		for range rows / benchPart {
			database.Exec(b, fillOutbox, time.Now().UnixMicro(), id, outbox.Lanes())
		}
		a, err := admin.New(database.Postbox(), admin.Config{}, nil)
		require.NoError(b, err)
		queues := func(b *testing.B) admin.QueueInfo {
			b.Helper()
			list, err := a.Queues(b.Context())
			require.NoError(b, err)
			require.Len(b, list, 1)
			return list[0]
		}
		require.Equal(b, admin.AtLeast, queues(b).Accuracy.Pending)
		cleaner := cleanup.New(database.DB, statements, "bench", cleanup.Config{Interval: time.Hour, Counts: true}, watermill.NopLogger{})
		for queues(b).Accuracy.Pending != admin.Counted {
			for range 20 { // steps
				require.True(b, cleaner.Round(b.Context()))
			}
		}
		var stored []byte
		require.NoError(b, database.DB.QueryRowContext(b.Context(), statements.ChoreCursor, counts.Task).Scan(&stored))
		require.Equal(b, rows, queues(b).Pending)

		b.Run("queues", func(b *testing.B) {
			timed(b, func() { queues(b) })
			b.ReportMetric(float64(counts.Decode(stored).Ready[id].Cost)/1000, "ms/count")
		})
		b.Run("measure", func(b *testing.B) {
			ignore := metrics.RecorderFunc(func(*metrics.Instrument, float64, ...string) {})
			timed(b, func() { require.NoError(b, a.Measure(b.Context(), ignore)) })
		})
	})
}

// timed reports the median and the shortest time of a call: on a machine that others use, the mean says little.
func timed(b *testing.B, call func()) {
	b.Helper()
	var times []time.Duration
	for b.Loop() {
		begin := time.Now()
		call()
		times = append(times, time.Since(begin))
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Microseconds())/1000, "ms-median")
	b.ReportMetric(float64(times[0].Microseconds())/1000, "ms-least")
}
