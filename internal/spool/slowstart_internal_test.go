package spool

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

func TestSlowStart_doubles_each_second_until_a_read_finds_fewer(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := slowStart{now: func() time.Time { return now }}
	require.Equal(t, 500, s.allow(500), "without a beginning nothing is limited")
	s.begin()
	require.Equal(t, 60, s.allow(60))
	s.found(60, 60)
	require.Equal(t, 40, s.allow(500), "what is left of the first second")
	s.found(40, 40)
	require.Zero(t, s.allow(500))
	s.found(0, 0)
	require.Equal(t, now.Add(time.Second), s.next(now.Add(time.Minute)), "the next second is looked for")
	require.Equal(t, now, s.next(now))
	for _, rate := range []int{200, 400, 800} {
		now = now.Add(time.Second)
		require.Equal(t, rate, s.allow(5000))
		s.found(rate, rate)
		require.Zero(t, s.allow(5000))
	}
	now = now.Add(time.Second)
	require.Equal(t, 500, s.allow(500))
	s.found(500, 499)
	require.Equal(t, 5000, s.allow(5000), "nothing more is overdue")
	require.Equal(t, now.Add(time.Minute), s.next(now.Add(time.Minute)))
}

func TestSlowStart_that_begins_again_admits_no_more_in_the_same_second(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := slowStart{now: func() time.Time { return now }}
	s.begin()
	s.found(100, 100)
	s.begin()
	require.Zero(t, s.allow(10))
	now = now.Add(3 * time.Second)
	require.Equal(t, 200, s.allow(500))
	s.begin()
	require.Equal(t, 100, s.allow(500))
}

// slowStarter is a drainer of a spool with so many messages that wait and are overdue, and as many that are ready.
// Its clock is that of the test.
func slowStarter(t *testing.T, database *testdb.Database, n int) (d *Drainer, now *time.Time) {
	t.Helper()
	own := newOutbox(t, database, 1)
	drafts := make([]Draft, 2*n)
	for i := range drafts {
		drafts[i] = Draft{Topic: "orders", MessageID: fmt.Sprint(i)}
	}
	require.NoError(t, own.Append(t.Context(), database.DB, Run, drafts))
	database.Exec(t, "UPDATE postbox_messages SET state = 2, attempts = 1, available_at = 0 WHERE id <= ?", n)
	database.MoveWaiting(t)
	d, end := newStepped(database.DB, own, 2*n)
	t.Cleanup(end)
	d.configured.Workers, d.config.Workers = 0, 0
	started := time.Now()
	now = &started
	d.slowStart.now = func() time.Time { return *now }
	require.NoError(t, d.tryOpen(t.Context()))
	return d, now
}

// read takes a drainer through a step that reads, and returns how many messages it has of those that waited, and of others.
func (d *Drainer) read(t *testing.T) (waited, others int) {
	t.Helper()
	d.pollAt = time.Time{}
	d.step(t.Context())
	for _, e := range d.scheduler.messages {
		if e.message.Ref.State == dialect.StateRetrying {
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
				d.renewAt = time.Time{}
			},
			"an outage of the database": func() {
				d.hindered(errNotAll)
				d.hindrance.until = time.Now() // the pause is over
			},
			"a resume": func() {
				database.Exec(t, "UPDATE postbox_spools SET paused_at = 1, version = version + 1")
				d.control.checkedAt = time.Time{}
				d.step(t.Context())
				database.Exec(t, "UPDATE postbox_spools SET paused_at = NULL, version = version + 1")
				d.control.checkedAt = time.Time{}
			},
		} {
			for d.read(t); d.slowStart.active; d.read(t) { // until nothing is overdue
			}
			d.slowStart.rate = 0
			standstill()
			d.read(t)
			require.Equal(t, slowStartRate, d.slowStart.rate, what)
		}
	})
}
