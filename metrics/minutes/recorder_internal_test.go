package minutes

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/instruments"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/metrics"
)

// counter is a recorder of another system.
type counter struct{ n atomic.Int64 }

func (c *counter) Record(*metrics.Instrument, float64, ...string) { c.n.Add(1) }

// measure reports ten messages, of which one failed and one died, with waits of 1 to 8 ms.
func measure(r *Recorder) {
	r.Record(instruments.Stored, 10, "queue", "mail", "orders")
	r.Record(instruments.Ended, 1, "queue", "mail", "orders", "retry")
	r.Record(instruments.Ended, 1, "queue", "mail", "orders", "dead")
	done := r.Series(instruments.Ended, "queue", "mail", "orders", "done")
	waits := r.Series(instruments.Latency, "queue", "mail", "orders")
	var all []float64
	for n := range 8 {
		done.Record(1)
		all = append(all, float64(n+1)/1000)
	}
	waits.RecordAll(all)
	r.Record(instruments.Handled, 0.04, "postbox", "process", "orders", "", "queue", "mail")
	r.Record(instruments.Reads, 1, "queue", "mail", "ok") // which has no column
}

func TestRecorder_writes_a_row_for_each_outbox_and_queue(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		other := &counter{}
		for range 2 { // two processes
			r, err := New(database.Postbox(), Config{Next: other}, nil)
			require.NoError(t, err)
			r.stop() // a minute that begins now would have some of the numbers
			<-r.ended
			measure(r)
			r.Record(instruments.Stored, 1, "outbox", "mail", "orders")
			require.NoError(t, r.Close())
		}
		require.Equal(t, int64(2*(3+8+8+2+1)), other.n.Load(), "the other recorder gets all of it")
		require.Equal(t, 4, database.Count(t, "SELECT COUNT(*) FROM postbox_minutes"))
		require.Equal(t, 2, database.Count(t, `SELECT COUNT(*) FROM postbox_minutes WHERE kind = 'queue' AND name = 'mail' AND
			arrived = 10 AND done = 8 AND failed = 1 AND dead = 1 AND starts = 1 AND
			wait_p50 > 2500 AND wait_p50 <= 5000 AND wait_p95 > 5000 AND wait_p95 <= 10000 AND call_p50 > 25000 AND call_p50 <= 50000`))
		require.Equal(t, 2, database.Count(t, "SELECT COUNT(*) FROM postbox_minutes WHERE kind = 'outbox' AND arrived = 1 AND done = 0 AND wait_p95 = 0"))
		now := time.Now().Unix() / 60
		require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_minutes WHERE minute < ? OR minute > ?", now-1, now))
	})
}

func TestRecorder_deletes_what_is_too_old(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		old := time.Now().Add(-48*time.Hour).Unix() / 60
		for _, minute := range []int64{old, old + 30, old + 100, old + 24*60 + 100} {
			database.Exec(t, `INSERT INTO postbox_minutes (minute, arrived, done, failed, dead, wait_p50, wait_p95, call_p50, call_p95, starts, kind, name, process)
				VALUES (?, 1, 0, 0, 0, 0, 0, 0, 0, 0, 'queue', 'gone', 'a')`, minute)
		}
		r, err := New(database.Postbox(), Config{Retention: 24 * time.Hour}, nil)
		require.NoError(t, err)
		measure(r)
		require.NoError(t, r.Close())
		require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_minutes WHERE name = 'gone'"))
	})
}

func TestRecorder_says_that_the_database_takes_no_rows(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t) // without tables
	r, err := New(database.Postbox(), Config{}, nil)
	require.NoError(t, err)
	measure(r)
	require.ErrorContains(t, r.Close(), "write what was measured")
	_, err = New(database.Postbox(), Config{Retention: -1}, nil)
	require.ErrorContains(t, err, "negative")
}
