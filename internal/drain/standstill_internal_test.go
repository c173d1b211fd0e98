package drain

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// A pause of the machine cannot be made here. To a process it looks like a wall clock that is
// suddenly ahead of the monotonic one, which is what these tests inject.

// sleeper is a drainer that has read a message, handed out nothing, and stands still when the test
// says so.
func sleeper(t *testing.T, database *testdb.Database) (d *Drainer, still *time.Duration) {
	t.Helper()
	own := newOutbox(t, database)
	require.NoError(t, own.Append(t.Context(), database.DB, spool.Run, []spool.Draft{{Topic: "orders"}}))
	d, end := newStepped(database.DB, own, 10)
	t.Cleanup(end)
	d.configured.Workers, d.config.Workers = 0, 0
	still = new(time.Duration)
	d.scheduler.Ahead = func(time.Time) time.Duration { return *still }
	require.NoError(t, d.tryOpen(t.Context()))
	d.step(t.Context())
	require.Len(t, d.scheduler.Snapshot().Messages, 1)
	require.False(t, d.scheduler.Snapshot().LeaseOver)
	return d, still
}

func TestDrainer_G6_hands_out_no_old_message_after_it_stood_still(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		d, still := sleeper(t, database)
		*still = 2 * time.Minute // the lease has one, and the monotonic clock has hardly moved
		database.Exec(t, "UPDATE postbox_lanes SET holder = 'two', token = token + 1")
		require.True(t, d.scheduler.Snapshot().LeaseOver)
		d.step(t.Context())
		require.Empty(t, d.scheduler.Snapshot().Messages, "what it read belongs to the new holder")
		require.Empty(t, d.lanes.held)
	})
}

func TestDrainer_renews_and_applies_settings_at_once_after_it_stood_still(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		d, still := sleeper(t, database)
		*still = 2 * time.Minute
		database.Exec(t, "UPDATE postbox_members SET expires_at = 0")
		database.Exec(t, "UPDATE postbox_spools SET paused_at = 1, version = version + 1")
		d.step(t.Context())
		require.False(t, d.scheduler.Snapshot().LeaseOver)
		require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_members WHERE expires_at > 0"))
		require.True(t, d.scheduler.Snapshot().Paused)
	})
}

func TestDrainer_wall_clock_that_is_set_back_changes_nothing(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		d, still := sleeper(t, database)
		renewAt := d.pace.renewAt
		*still = -time.Hour
		d.step(t.Context())
		require.False(t, d.scheduler.Snapshot().LeaseOver)
		require.Equal(t, renewAt, d.pace.renewAt, "nor is it renewed")
	})
}
