package admin_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

func TestMinutes_are_added_up_over_processes_and_parts(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		start := time.Unix(100*60, 0).UTC()
		write := func(minute, done, wait int64, starts int, process, name string) {
			database.Exec(t, `INSERT INTO postbox_minutes (minute, arrived, done, failed, dead, wait_p50, wait_p95, call_p50, call_p95, starts, kind, name, process)
				VALUES (?, 7, ?, 1, 0, ?, ?, 10, 20, ?, 'queue', ?, ?)`, minute, done, wait, 10*wait, starts, name, process)
		}
		write(99, 50, 1, 0, "a", "mail") // before
		write(100, 10, 1000, 1, "a", "mail")
		write(100, 30, 3000, 1, "b", "mail")
		write(109, 10, 500, 0, "a", "mail")
		write(112, 4, 100, 0, "a", "mail")
		write(112, 4, 100, 0, "a", "other")
		write(120, 50, 1, 0, "a", "mail") // after
		mail, end := admin.Queue("mail"), start.Add(20*time.Minute)
		parts, err := b.admin.Minutes(t.Context(), mail, start, end, 10*time.Minute)
		require.NoError(t, err)
		require.Equal(t, []admin.Minutes{
			{
				From: start, Stored: 21, Done: 50, Failed: 3, Started: 2,
				WaitMedian: 2100 * time.Microsecond, WaitSlow: 30 * time.Millisecond, CallMedian: 10 * time.Microsecond, CallSlow: 20 * time.Microsecond,
			},
			{
				From: start.Add(10 * time.Minute), Stored: 7, Done: 4, Failed: 1,
				WaitMedian: 100 * time.Microsecond, WaitSlow: time.Millisecond, CallMedian: 10 * time.Microsecond, CallSlow: 20 * time.Microsecond,
			},
		}, parts)
		_, err = b.admin.Minutes(t.Context(), mail, start, end, time.Second)
		require.ErrorIs(t, err, admin.ErrInvalid)
		_, err = b.admin.Minutes(t.Context(), mail, start, start, time.Minute)
		require.ErrorIs(t, err, admin.ErrInvalid)
	})
}
