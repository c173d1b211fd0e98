package admin_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/instruments"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/metrics"
)

// However many outboxes and queues there are, an operator's look at all of them, and a scrape of
// metrics, is a handful of statements. On MariaDB one of them is for each 25.
func TestQueues_G8_ask_about_many_outboxes_at_once(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		const outboxes = 500
		b.database.Exec(t, "DELETE FROM postbox_spools")
		for i := range outboxes {
			b.database.Exec(t, "INSERT INTO postbox_spools (name) VALUES (?)", fmt.Sprintf("outbox-%03d", i))
		}
		for i := 0; i < outboxes; i += 100 {
			s := spool.New(b.statements, fmt.Sprintf("outbox-%03d", i))
			require.NoError(t, s.Append(t.Context(), b.database.DB, spool.Run, numbered(2+i/100)))
		}
		db, record := b.database.OpenRecorded(t)
		watching, err := admin.New(b.database.On(db), admin.Config{}, nil)
		require.NoError(t, err)
		record.Take()
		for what, look := range map[string]func(context.Context) error{
			"queues": func(ctx context.Context) error { _, err := watching.Queues(ctx); return err },
			"a scrape": func(ctx context.Context) error {
				return watching.Measure(ctx, instruments.RecorderFunc(func(*metrics.Instrument, float64, ...string) {}))
			},
		} {
			began := time.Now()
			require.NoError(t, look(t.Context()))
			asked := record.Take()
			t.Logf("%s: %d statements, %s", what, len(asked), time.Since(began))
			require.LessOrEqual(t, len(asked), 15+outboxes/25, what)
		}
		queues, err := b.admin.Queues(t.Context())
		require.NoError(t, err)
		require.Len(t, queues, outboxes)
		for i, q := range queues {
			want := 0
			if i%100 == 0 {
				want = 2 + i/100
			}
			require.Equal(t, want, q.Pending, q.Target)
		}
	})
}
