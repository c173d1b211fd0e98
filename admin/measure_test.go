package admin_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/instruments"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/metrics"
)

func TestMeasure_counts_what_is_in_the_database(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.append(draft("one", "orders", ""), draft("two", "orders", ""))
		queue := spool.New(b.statements, spool.QueuePrefix+"mail")
		d := draft("three", "mail", "")
		require.NoError(t, queue.Append(t.Context(), database.DB, spool.Run, []spool.Draft{d}))

		var mu sync.Mutex
		values := map[string]float64{}
		recorder := instruments.RecorderFunc(func(i *metrics.Instrument, value float64, labels ...string) {
			mu.Lock()
			defer mu.Unlock()
			require.True(t, i.Database, i.Name)
			require.Len(t, labels, len(i.Labels), i.Name)
			if i == instruments.Backlog && labels[2] == "pending" {
				values[labels[0]+" "+labels[1]] = value
			}
			if i == instruments.DatabaseUp {
				values["up"] = value
			}
		})
		require.NoError(t, b.admin.Measure(t.Context(), recorder))
		require.Equal(t, map[string]float64{"up": 1, "outbox " + b.target.Name: 2, "queue mail": 1}, values)
	})
}

// A consumer that keeps a history is known to the database, so its dead letters are 0 and not
// missing. Of others it knows the dead letters alone.
func TestMeasure_dead_letters_of_inboxes(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.received("1")
		b.buryInbox("2", 0)
		b.exec("UPDATE postbox_dead_letters SET consumer = 'shipping'")
		measured := func() map[string]float64 {
			values := map[string]float64{}
			require.NoError(t, b.admin.Measure(t.Context(), instruments.RecorderFunc(func(i *metrics.Instrument, value float64, labels ...string) {
				if i == instruments.InboxDeadLetters {
					values[labels[0]] = value
				}
			})))
			return values
		}
		require.Equal(t, map[string]float64{"billing": 0, "shipping": 1}, measured())
		_, err := b.admin.Resolve(t.Context(), admin.Filter{Consumer: "shipping"}, "paid by hand")
		require.NoError(t, err)
		require.Equal(t, map[string]float64{"billing": 0}, measured())
	})
}

// A scrape must not wait for a database that hangs, and the next one must not wait for the last.
func TestMeasure_ends_with_its_context_while_the_database_hangs(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	b := newBench(t, database)
	database.DB.SetMaxOpenConns(1)
	conn, err := database.DB.Conn(t.Context())
	require.NoError(t, err)
	ignore := instruments.RecorderFunc(func(*metrics.Instrument, float64, ...string) {})
	for range 8 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		require.Error(t, b.admin.Measure(ctx, ignore))
		cancel()
	}
	require.NoError(t, conn.Close())
	require.Eventually(t, func() bool { return b.admin.Measure(t.Context(), ignore) == nil }, time.Minute, testdb.PollPause)
}
