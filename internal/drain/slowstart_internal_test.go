package drain

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/schedule"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// slowStarter is a drainer of a spool with so many messages that wait and are overdue, and as many
// that are ready. Its clock is that of the test.
func slowStarter(t *testing.T, database *testdb.Database, n int) (d *Drainer, now *time.Time) {
	t.Helper()
	own := newOutbox(t, database)
	drafts := make([]spool.Draft, 2*n)
	for i := range drafts {
		drafts[i] = spool.Draft{Topic: "orders", MessageID: fmt.Sprint(i)}
	}
	require.NoError(t, own.Append(t.Context(), database.DB, spool.Run, drafts))
	database.Exec(t, "UPDATE postbox_messages SET state = 2, attempts = 1, available_at = 0 WHERE id <= ?", n)
	database.MoveWaiting(t)
	d, end := newStepped(database.DB, own, 2*n)
	t.Cleanup(end)
	d.configured.Workers, d.config.Workers = 0, 0
	started := time.Now()
	now = &started
	d.pace.slowStart.Now = func() time.Time { return *now }
	require.NoError(t, d.tryOpen(t.Context()))
	return d, now
}

// read takes a drainer through a step that reads, and returns how many messages it has of those
// that waited, and of others.
func (d *Drainer) read(t *testing.T) (waited, others int) {
	t.Helper()
	d.pace.at = time.Time{}
	d.step(t.Context())
	for _, m := range d.scheduler.Snapshot().Messages {
		if m.Ref.State == dialect.StateRetrying {
			waited++
		} else {
			others++
		}
	}
	return waited, others
}

func TestDrainer_spreads_overdue_retries_after_a_start(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		const n = 600
		d, now := slowStarter(t, database, n)
		for _, want := range []int{100, 300, 600} { // 100 in the first second, 200 in the next, 300 are left in the third
			for range 2 {
				waited, others := d.read(t)
				require.Equal(t, want, waited)
				require.Equal(t, n, others, "ready messages are not slowed")
			}
			*now = now.Add(time.Second)
		}
	})
}

// What makes retries overdue in numbers: nothing was handled for a while.
func TestDrainer_spreads_overdue_retries_after_each_standstill(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		d, _ := slowStarter(t, database, 1)
		for what, standstill := range map[string]func(){
			"a takeover of lanes": func() {
				database.Exec(t, "UPDATE postbox_lanes SET token = token + 1")
				d.pace.renewAt = time.Time{}
			},
			"an outage of the database": func() {
				d.stepFailed(errNotRemoved)
				d.trouble.until = time.Now() // the pause is over
			},
			"a resume": func() {
				database.Exec(t, "UPDATE postbox_spools SET paused_at = 1, version = version + 1")
				d.control.checkedAt = time.Time{}
				d.step(t.Context())
				database.Exec(t, "UPDATE postbox_spools SET paused_at = NULL, version = version + 1")
				d.control.checkedAt = time.Time{}
			},
		} {
			for d.read(t); d.pace.slowStart.Active; d.read(t) { // until nothing is overdue
			}
			d.pace.slowStart.Rate = 0
			standstill()
			d.read(t)
			require.Equal(t, schedule.SlowStartRate, d.pace.slowStart.Rate, what)
		}
	})
}
