package drain_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/schedule"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// several are keys that are in different lanes.
var several = []string{"a", "b", "c", "d", "e", "f", "g", "h"}

// knowing returns a producer that knows this layout, and does not read another one.
func (b *bench) knowing(layout dialect.Layout) *spool.Spool {
	b.T.Helper()
	id, err := b.Spool.Open(b.T.Context(), b.Database.DB)
	require.NoError(b.T, err)
	return spool.Registered(b.Statements, b.Spool.Name(), spool.Found{ID: id, Layout: layout})
}

// fresh returns a producer that reads the layout first.
func (b *bench) fresh() *spool.Spool { return spool.New(b.Statements, b.Spool.Name(), lanes) }

// write stores a message of each of several keys.
func (b *bench) write(into *spool.Spool, number string) {
	b.T.Helper()
	for _, key := range several {
		require.NoError(b.T, into.Append(b.T.Context(), b.Database.DB, spool.Run, []spool.Draft{draft(key+"/"+number, key)}))
	}
}

// unusable returns how many lanes of the layout no process can hold.
func (b *bench) unusable() int {
	return b.Database.Count(b.T, `SELECT COUNT(*) FROM postbox_lanes l JOIN postbox_spools s ON s.id = l.spool
WHERE l.lane >= s.first_lane AND l.lane < s.first_lane + s.lanes AND l.holder = ''`)
}

func TestLanes_G3_two_operators_change_them_at_once(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		handler := newSequences()
		b.write(b.Spool, "1")
		b.start(database.DB, handler, config("one"))
		ended := make(chan error, 2)
		for _, n := range []int{3, 5} {
			go func() { _, err := b.setLanes(t.Context(), n); ended <- err }()
		}
		for range 2 {
			if err := <-ended; err != nil {
				require.ErrorIs(t, err, spool.ErrOldLayout)
			}
		}
		b.write(b.fresh(), "2")
		require.Contains(t, []int{3, 5}, database.Count(t, "SELECT lanes FROM postbox_spools"))
		require.Equal(t, 2, database.Count(t, "SELECT SUM(affected) FROM postbox_audit WHERE action = 'set lanes'"), "both were changes")
		b.Eventually(func() bool { return b.Pending() == 0 }, "all are handled")
		handler.check(t, 2*len(several))
		require.Zero(t, b.unusable())
	})
}

// A process that does not know of a change takes no new lane for an old one. A process of a version before migration 24, which starts with the new number,
// writes into none of the new lanes.
func TestLanes_G3_processes_that_do_not_know_of_a_change(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		stale, former := b.knowing(dialect.Layout{Lanes: lanes}), b.knowing(dialect.Layout{Lanes: 64})
		b.write(stale, "1")
		_, err := b.setLanes(t.Context(), 64)
		require.NoError(t, err)
		_, err = stale.MoveFromOldLanes(t.Context(), database.DB, stale.Layout())
		require.ErrorIs(t, err, spool.ErrOldLayout)
		require.Zero(t, b.unusable())
		b.write(b.fresh(), "2")
		b.write(former, "3")
		b.write(b.fresh(), "4")
		b.write(stale, "5")
		handler := newSequences()
		b.start(database.DB, handler, config("one"))
		b.Eventually(func() bool { return b.Pending() == 0 }, "all are handled")
		handler.check(t, 5*len(several))
	})
}

// Rows of lanes do not become more with each change. A producer that has slept through several changes writes into a lane whose row is gone, and so does a
// transaction that was open meanwhile. Also covers G8.
func TestLanes_G3_rows_of_old_lanes_are_dropped_by_later_changes(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		stale := b.knowing(dialect.Layout{Lanes: lanes})
		b.write(stale, "1")
		handler := newSequences()
		b.start(database.DB, handler, config("one"))
		last := 0
		for i := range 6 {
			last = 3 + i%2
			_, err := b.setLanes(t.Context(), last)
			require.NoError(t, err)
		}
		b.write(stale, "2")
		b.write(b.fresh(), "3")
		b.Eventually(func() bool { return b.Pending() == 0 }, "all are handled")
		handler.check(t, 3*len(several))
		for range 3 { // the lanes that the forwarder held, and those into which the stale producer has written
			last = 7 - last
			_, err := b.setLanes(t.Context(), last)
			require.NoError(t, err)
			b.Eventually(func() bool { return b.held("one") == last }, "it has the new lanes alone")
		}
		require.LessOrEqual(t, database.Count(t, "SELECT COUNT(*) FROM postbox_lanes"), 3+4+3)
	})
}

// A standby without the latest change has been promoted, and a producer still uses the layout that was lost.
func TestLanes_G1_the_database_goes_back_to_a_state_before_a_change(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.write(b.fresh(), "1")
		b.write(b.knowing(dialect.Layout{First: 300, Lanes: 5}), "2")
		b.write(b.fresh(), "3")
		handler := newSequences()
		b.start(database.DB, handler, config("one"))
		b.Eventually(func() bool { return b.Pending() == 0 }, "all are handled")
		handler.check(t, 3*len(several))

		_, err := b.setLanes(t.Context(), 6)
		require.NoError(t, err)
		require.Zero(t, b.unusable(), "no number is used a second time")
		b.write(b.fresh(), "4")
		b.Eventually(func() bool { return b.Pending() == 0 }, "it goes on")
		handler.check(t, 4*len(several))
	})
}

// Another transaction has locked a message in an old lane. Also covers F36.
func TestLanes_G3_wait_for_a_message_that_is_locked(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.write(b.Spool, "1")
		other, err := database.DB.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { _ = other.Rollback() }()
		var id int64
		require.NoError(t, other.QueryRowContext(t.Context(), "SELECT id FROM postbox_messages ORDER BY id LIMIT 1 FOR UPDATE").Scan(&id))
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		ended := make(chan error, 1)
		go func() { _, err := b.setLanes(ctx, 3); ended <- err }()
		b.Eventually(func() bool { return database.Count(t, "SELECT COUNT(*) FROM postbox_lanes WHERE holder = ''") == lanes }, "the number is changed, and messages are moved")
		stop()
		err = <-ended
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorContains(t, err, "no process holds one of their lanes")
		b.write(b.fresh(), "2")
		handler := newSequences()
		r := b.start(database.DB, handler, config("one"))
		signal(t, r.Ready(), "it has read")
		require.Empty(t, handler.ids(), "one message is in an old lane")
		require.NoError(t, other.Rollback())
		b.Eventually(func() bool { return b.Pending() == 0 }, "all are handled")
		handler.check(t, 2*len(several))
	})
}

// One process at a time works on all lanes.
func TestLanes_G3_change_while_exclusive_drainers_work(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	b := newBench(t, database)
	handler := newSequences()
	for _, name := range []string{"one", "two"} {
		c := config(name)
		exclusive(&c)
		b.start(database.DB, handler, c)
	}
	for i, n := range []int{3, 16, 1} {
		b.write(b.Spool, fmt.Sprint(2*i))
		_, err := b.setLanes(t.Context(), n)
		require.NoError(t, err)
		b.write(b.fresh(), fmt.Sprint(2*i+1))
	}
	b.Eventually(func() bool { return b.Pending() == 0 }, "all are handled")
	handler.check(t, 6*len(several))
	b.Eventually(func() bool { return b.held("one")+b.held("two") == 1 }, "one has the only lane")
}

// Batches are gathered in memory from messages of all lanes.
func TestLanes_change_while_a_batch_is_gathered(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	b := newBench(t, database)
	handler := &collector{}
	never := func(time.Time) time.Time { return time.Time{} }
	r := b.start(database.DB, handler, gathered("one", 2*len(several), schedule.Gather{Due: never}))
	b.write(b.Spool, "1")
	signal(t, r.Ready(), "it has read")
	_, err := b.setLanes(t.Context(), 3)
	require.NoError(t, err)
	b.write(b.Spool, "2") // stale
	b.Eventually(func() bool { return b.Pending() == 0 }, "the batch is complete")
	require.Len(t, handler.got(), 1)
	ids := handler.ids()
	for _, key := range several {
		require.Less(t, slices.Index(ids, key+"/1"), slices.Index(ids, key+"/2"), key)
	}
}

// outspoken is a handler that passes on each of its outcomes.
type outspoken struct {
	*effector
	outcomes chan spool.Outcome
}

func (h *outspoken) Handle(ctx context.Context, batch []*spool.Message) []spool.Outcome {
	outcomes := h.effector.Handle(ctx, batch)
	for _, o := range outcomes {
		h.outcomes <- o
	}
	return outcomes
}

// A process slept while it handled a message: its lease ended, its lane was retired, and the message was moved and is being handled again.
func TestLanes_G4_a_process_that_slept_settles_nothing(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.effects()
		starts, proceed := make(chan struct{}, 2), []chan struct{}{make(chan struct{}), make(chan struct{})}
		var started atomic.Int32
		handler := &outspoken{outcomes: make(chan spool.Outcome, 2)}
		slept := b.spawn("slept", func(p *process) drain.Handler {
			handler.effector = &effector{p: p, do: func(context.Context, *spool.Message) error {
				n := int(started.Add(1)) - 1
				starts <- struct{}{}
				<-proceed[n]
				return nil
			}}
			return handler
		}, func(c *drain.Config) { c.Workers = 1 })
		b.Append(database.DB, draft("a/1", "a"))
		<-starts

		slept.expire()
		for _, n := range []int{3, 5} { // the second change drops the row of its lane
			_, err := b.setLanes(t.Context(), n)
			require.NoError(t, err)
		}
		require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_lanes WHERE lane < ?", spool.MaxLanes))
		require.Equal(t, 1, b.inLanes(spool.MaxLanes+3, spool.MaxLanes+7))
		b.start(database.DB, handler, config("other"))
		b.Eventually(func() bool {
			slept.expire() // it may have taken new lanes
			return len(starts) == 1
		}, "the other process handles it")

		close(proceed[0])
		first := <-handler.outcomes
		require.Equal(t, spool.Again, first.Verdict)
		require.ErrorIs(t, first.Err, spool.ErrLost)
		require.Zero(t, b.effect(""))
		require.Equal(t, 1, b.Pending())

		close(proceed[1])
		b.Eventually(func() bool { return b.Pending() == 0 }, "the second run settles it")
		b.effectsOnce(1)
	})
}
