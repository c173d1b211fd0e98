package drain_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/keyhash"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

func exclusive(c *drain.Config) { c.Exclusive = true }

// keyOf returns a key that lives in the lane.
func keyOf(lane int) string {
	for i := 0; ; i++ {
		if key := fmt.Sprint(i); keyhash.Lane(keyhash.Of(key), lanes) == lane {
			return key
		}
	}
}

// own gives lanes to a process that is not there, for an hour.
func (b *bench) own(condition string) {
	b.T.Helper()
	b.Database.Exec(b.T, "INSERT INTO postbox_members (spool, holder, in_flight, expires_at) SELECT id, 'somebody', '{}', ? FROM postbox_spools", time.Now().Add(time.Hour).UnixMicro())
	b.Database.Exec(b.T, "UPDATE postbox_lanes SET holder = 'somebody', token = token + 1 WHERE "+condition)
}

// open registers the spool and its lanes.
func (b *bench) open() {
	b.T.Helper()
	r := b.start(b.Database.DB, &recorder{}, config("opener"))
	signal(b.T, r.Ready(), "it is there")
	r.stop(b.T)
}

// While messages keep coming, processes come, stop and crash. Those that live work one at a time,
// each on all lanes.
func TestDrainer_G6_exclusive_drainers_take_turns(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		var alive atomic.Pointer[process] // whose handlers have run last
		var overlaps, handled atomic.Int32
		handler := func(p *process) drain.Handler {
			var running atomic.Int32
			return &effector{p: p, do: func(context.Context, *spool.Message) error {
				running.Add(1)
				defer running.Add(-1)
				if before := alive.Swap(p); before != nil && before != p {
					select {
					case <-before.dead: // its lease ran out
					case err := <-before.done: // it has stopped
						before.done <- err
					default:
						overlaps.Add(1)
					}
				}
				handled.Add(1)
				return nil
			}}
		}
		b.effects()
		const part = 40
		round := 0
		work := func(what string) {
			b.Append(database.DB, drafts((round+1)*part, func(i int) string { return fmt.Sprint(i % 20) })[round*part:]...)
			round++
			b.Eventually(func() bool { return b.Pending() == 0 }, what)
		}
		one := b.spawn("one", handler, exclusive)
		two := b.spawn("two", handler, exclusive)
		work("one of two works")
		first, second := one, two
		if alive.Load() == two {
			first, second = two, one
		}
		require.Equal(t, lanes, b.held(first.name))
		require.Zero(t, b.held(second.name))
		first.stop(t)
		work("after a stop the other goes on")
		require.Equal(t, lanes, b.held(second.name))
		third := b.spawn("three", handler, exclusive)
		signal(t, third.Ready(), "it stands by")
		second.kill()
		work("after a crash the third goes on")
		require.Same(t, third, alive.Load())
		require.Zero(t, overlaps.Load())
		b.effectsOnce(3 * part)
	})
}

// Who gets the first lane while somebody else still works on others waits for them: otherwise two
// would work.
func TestDrainer_G6_exclusive_drainer_begins_when_it_has_all_lanes(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.open()
		b.own("lane = 3")
		b.Append(database.DB, draft("first lane", keyOf(0)), draft("owned", keyOf(3)))
		handler := &recorder{}
		c := config("heir")
		exclusive(&c)
		r := b.start(database.DB, handler, c)
		b.Eventually(func() bool { return b.held("heir") == lanes-1 && r.started() }, "it has what is free")
		b.never(func() bool { return len(handler.ids()) > 0 }, 100*time.Millisecond, "somebody else still works")
		database.Exec(t, "UPDATE postbox_members SET expires_at = 0 WHERE holder = 'somebody'")
		b.Eventually(func() bool { return b.Pending() == 0 }, "it has all and works")
		require.Equal(t, lanes, b.held("heir"))
	})
}

// started says that the drainer has looked at its lanes.
func (r *running) started() bool {
	select {
	case <-r.Ready():
		return true
	default:
		return false
	}
}

// Who loses the first lane lets go of all others when its handlers have ended, and begins nothing
// more.
func TestDrainer_G6_exclusive_drainer_lets_go_of_all_lanes(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		handler := newStanding()
		b.Append(database.DB, draft("runs", keyOf(2)), draft("waits", keyOf(2)))
		c := config("loser")
		exclusive(&c)
		c.BatchSize = 1
		b.start(database.DB, handler, c)
		signal(t, handler.entered, "it works")
		b.own("lane = 0")
		b.Eventually(func() bool { return b.held("loser") == 1 }, "it keeps the lane of what runs")
		b.Append(database.DB, draft("other", keyOf(5)), draft("none", ""))
		handler.proceed <- spool.Outcome{Verdict: spool.Done}
		b.Eventually(func() bool { return b.held("loser") == 0 }, "it lets go")
		require.Equal(t, 3, b.Pending(), "what ran is settled")
		require.Empty(t, handler.entered, "and nothing else was begun")
	})
}

// Standing by is quiet: who does not get the first lane does not take others again and again.
func TestDrainer_G8_exclusive_drainer_on_standby_changes_few_lanes(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.open()
		b.own("lane = 0")
		before, changed := laneTokens(t, database), 0
		c := config("stand-by")
		exclusive(&c)
		c.Renew = 50 * time.Millisecond
		r := b.start(database.DB, &recorder{}, c)
		b.Eventually(r.started, "it looks")
		renewals := time.NewTicker(c.Renew)
		defer renewals.Stop()
		for range 6 {
			<-renewals.C
			now := laneTokens(t, database)
			for lane, token := range now {
				if before[lane] != token {
					changed++
				}
			}
			before = now
			require.LessOrEqual(t, changed, 40, "once a renewal is enough")
		}
		require.Zero(t, b.Pending())
	})
}

func laneTokens(t *testing.T, database *testdb.Database) map[int]int64 {
	t.Helper()
	rows, err := database.DB.QueryContext(t.Context(), "SELECT lane, token FROM postbox_lanes")
	require.NoError(t, err)
	defer func() { _ = rows.Close() }()
	tokens := map[int]int64{}
	for rows.Next() {
		var lane int
		var token int64
		require.NoError(t, rows.Scan(&lane, &token))
		tokens[lane] = token
	}
	require.NoError(t, rows.Err())
	return tokens
}
