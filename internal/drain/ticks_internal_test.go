package drain

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/schedule"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// The clock of the database is set back across a scheduled time, or a standby takes over whose
// clock is a little behind. A message that is stored before that time comes once more goes out
// then, and not a period later.
func TestTicks_G11_a_time_comes_again_after_the_clock_was_set_back(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		gather := &schedule.Gather{OnlyDue: true, Due: func(stored time.Time) time.Time { return stored.Truncate(time.Hour).Add(time.Hour) }}
		own := newOutbox(t, database)
		d, end := newStepped(database.DB, own, 10)
		t.Cleanup(end)
		d.configured.Gather, d.scheduler = gather, schedule.New(1, gather)
		require.NoError(t, d.tryOpen(t.Context()))
		require.NoError(t, d.upkeep(t.Context()))
		require.NoError(t, d.applySettings(t.Context()))
		full := time.Now().Truncate(time.Hour)
		inMemoryAt := func(clock time.Time) int { // after a read at that time by the database's clock
			for again := true; again; {
				params := d.reader.params(d.lanes.numbers(), 10)
				found, err := d.reader.fetch(t.Context(), params)
				require.NoError(t, err)
				found.now = clock
				again = !d.reader.takeIn(params, found)
			}
			return len(d.scheduler.Snapshot().Messages)
		}
		require.Zero(t, inMemoryAt(full.Add(time.Millisecond)))

		require.NoError(t, own.Append(t.Context(), database.DB, spool.Run, []spool.Draft{{Topic: "orders", MessageID: "1"}}))
		database.Exec(t, "UPDATE postbox_messages SET created_at = ?", full.Add(-500*time.Millisecond).UnixMicro())
		require.Zero(t, inMemoryAt(full.Add(-400*time.Millisecond)), "a second before that, by the clock that was set back")
		require.Equal(t, 1, inMemoryAt(full.Add(time.Millisecond)), "the time has come again")
	})
}
