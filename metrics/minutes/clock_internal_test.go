package minutes

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/instruments"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// While a clock that was set back catches up, numbers wait in memory: no row lies in the future.
func TestFlush_after_the_clock_was_set_back(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	database.Migrate(t)
	r, err := New(database.Postbox(), Config{}, nil)
	require.NoError(t, err)
	r.stop() // the test says which minute it is
	<-r.ended
	for _, minute := range []int64{160, 100, 101, 161} {
		r.Record(instruments.Stored, 1, "outbox", "outbox", "orders")
		require.NoError(t, r.flush(t.Context(), minute))
	}
	require.Equal(t, 2, database.Count(t, "SELECT COUNT(*) FROM postbox_minutes"))
	require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_minutes WHERE minute = 161 AND arrived = 3"))
}

func TestFlush_logs_that_old_rows_stay(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	database.Migrate(t)
	database.Exec(t, `INSERT INTO postbox_minutes (minute, arrived, done, failed, dead, wait_p50, wait_p95, call_p50, call_p95, starts, kind, name, process)
		VALUES (1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 'queue', 'gone', 'a')`)
	database.Exec(t, "CREATE TRIGGER stays BEFORE DELETE ON postbox_minutes BEGIN SELECT RAISE(ABORT, 'no right'); END")
	logger := watermill.NewCaptureLogger()
	r, err := New(database.Postbox(), Config{}, logger)
	require.NoError(t, err)
	r.stop()
	<-r.ended
	require.ErrorContains(t, r.Close(), "delete old rows")
	require.Len(t, logger.Captured()[watermill.ErrorLogLevel], 1)
}
