package drain_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// counter observes the handlers of several processes by the names of these.
type counter struct {
	mu            sync.Mutex
	running, most int
	handled       map[string]int
	starts        []time.Time
	while         time.Duration
}

func (c *counter) of(p *process) drain.Handler { return &counted{counter: c, name: p.name} }

type counted struct {
	*counter

	name string
}

func (c *counted) Excluded() []string { return nil }

func (c *counted) Handle(_ context.Context, batch []*spool.Message) []spool.Outcome {
	c.mu.Lock()
	c.running++
	c.most = max(c.most, c.running)
	c.starts = append(c.starts, time.Now())
	c.mu.Unlock()
	<-time.After(c.while)
	c.mu.Lock()
	c.running--
	c.handled[c.name] += len(batch)
	c.mu.Unlock()
	return make([]spool.Outcome, len(batch))
}

func (c *counter) began() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.starts)
}

// all reports whether each of so many processes has handled that many messages.
func (c *counter) all(processes, messages int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.handled) == processes && !slices.ContainsFunc([]string{"one", "two", "three"}[:processes], func(name string) bool { return c.handled[name] < messages })
}

// three starts as many processes, which have all lanes among them.
func (b *bench) three(c *counter, limits postbox.Limits) {
	b.T.Helper()
	limited := func(config *drain.Config) {
		config.Limits, config.BatchSize = limits, 1
		config.Renew = 20 * time.Millisecond
	}
	for _, name := range []string{"one", "two", "three"} {
		p := b.spawn(name, c.of, limited)
		signal(b.T, p.Ready(), name)
	}
	b.Eventually(func() bool {
		return b.held("one") >= lanes/3 && b.held("two") >= lanes/3 && b.held("three") >= lanes/3
	}, "each has its share of the lanes")
}

// Four keys lie in few lanes, so each of the three processes has a part of them. What one does not
// use the others get.
func TestDrainer_limits_give_the_whole_rate_to_few_keys_in_several_processes(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		const rate, enough, saved = 10, 60, 500 * time.Millisecond
		c := &counter{handled: map[string]int{}, while: 20 * time.Millisecond}
		b.three(c, postbox.Limits{Total: postbox.Limit{PerSecond: rate}})
		b.Append(database.DB, drafts(2*enough, func(i int) string { return fmt.Sprint("customer ", i%4) })...)
		b.Eventually(func() bool { return c.began() >= enough+1 }, "they work")
		c.mu.Lock()
		defer c.mu.Unlock()
		slices.SortFunc(c.starts, time.Time.Compare)
		elapsed := c.starts[enough].Sub(c.starts[0])
		for i := range enough { // what a machine that stands still for longer loses cannot be made up for
			elapsed -= max(c.starts[i+1].Sub(c.starts[i])-saved, 0)
		}
		t.Logf("%.2f of the rate", enough/elapsed.Seconds()/rate)
		require.GreaterOrEqual(t, enough/elapsed.Seconds(), 0.85*rate, "by lanes it would be about two thirds")
		for i := range c.starts {
			for j := i; j < len(c.starts); j++ {
				require.LessOrEqual(t, float64(j-i+1), rate*(c.starts[j].Sub(c.starts[i]).Seconds()+0.75)+3, "from %d to %d", i, j)
			}
		}
	})
}

// There are fewer slots than processes, and each process has messages in its lanes.
func TestDrainer_limits_of_calls_at_once_leave_no_process_without_slots(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		const slots = 2
		c := &counter{handled: map[string]int{}, while: 5 * time.Millisecond}
		b.three(c, postbox.Limits{Total: postbox.Limit{MaxConcurrent: slots}})
		for part := range 10 {
			b.Append(database.DB, drafts((part+1)*300, func(i int) string { return keyOf(i % lanes) })[part*300:]...)
		}
		b.Eventually(func() bool { return c.all(3, 20) }, "each of them works")
		require.Positive(t, b.Pending(), "while there is enough to do for one")
		c.mu.Lock()
		defer c.mu.Unlock()
		require.LessOrEqual(t, c.most, slots)
	})
}

// The handler of a process that crashes has all slots. They are free when its lease is over.
func TestDrainer_G8_limits_slots_of_a_process_that_crashes_are_free(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		limited := func(c *drain.Config) { c.Limits.Topics = map[string]postbox.Limit{"orders": {MaxConcurrent: 1}} }
		standing := newStanding()
		first := b.spawn("first", func(*process) drain.Handler { return standing }, limited)
		signal(t, first.Ready(), "one is there")
		b.Append(database.DB, drafts(5, keyOf)...)
		signal(t, standing.entered, "its handler has the slot")
		handler := &recorder{}
		second := b.spawn("second", func(*process) drain.Handler { return handler }, limited)
		signal(t, second.Ready(), "another one is there")
		require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_limits WHERE holder = 'first'"))
		require.Empty(t, handler.ids())
		first.kill()
		b.Eventually(func() bool { return b.Pending() == 0 }, "the other one has it")
		require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_limits WHERE slot > 0"))
	})
}

// Operators raise and lower limits, and take them away.
func TestDrainer_limits_change_while_processes_run(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		handler := newStanding()
		b.spawn("one", func(*process) drain.Handler { return handler }, func(c *drain.Config) {
			c.BatchSize, c.Workers, c.Limits.Total.PerSecond = 1, 8, 0.001
		})
		list := drafts(8, func(int) string { return "" })
		b.Append(database.DB, list...)
		b.never(func() bool { return len(handler.entered) > 0 }, 100*time.Millisecond, "the rate lets none through")
		b.set(spool.Settings{PerSecond: -1, MaxConcurrent: 1})
		signal(t, handler.entered, "one may run")
		b.never(func() bool { return len(handler.entered) > 0 }, 100*time.Millisecond, "the others wait")
		b.set(spool.Settings{PerSecond: 10_000, MaxConcurrent: 3})
		signal(t, handler.entered, "two")
		signal(t, handler.entered, "three")
		b.never(func() bool { return len(handler.entered) > 0 }, 100*time.Millisecond, "the others wait")
		b.set(spool.Settings{PerSecond: -1, MaxConcurrent: -1})
		for range 5 {
			signal(t, handler.entered, "the others")
		}
		for range list {
			handler.proceed <- spool.Outcome{Verdict: spool.Done}
		}
		b.Eventually(func() bool { return b.Pending() == 0 }, "all are done")
		require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_limits WHERE holder IS NOT NULL"), "no slot is held for a limit that is gone")
	})
}

// A slow limit goes on where it was, also if no process stays for long.
func TestDrainer_limits_remember_what_a_process_that_stopped_has_used(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.Append(database.DB, drafts(3, func(int) string { return "" })...)
		c := config("one")
		c.BatchSize, c.Limits.Total.PerSecond = 1, 0.01
		handler := &recorder{}
		first := b.start(database.DB, handler, c)
		b.Eventually(func() bool { return database.Count(t, "SELECT COUNT(*) FROM postbox_limits") == 1 }, "it begins to count")
		first.stop(t)
		require.Empty(t, handler.ids(), "nothing is saved up")
		database.Exec(t, "UPDATE postbox_limits SET token = token - 100000000") // as if 100 s had passed
		second := b.start(database.DB, handler, c)
		b.Eventually(func() bool { return b.Pending() == 2 }, "a message may begin")
		second.stop(t)
		third := b.start(database.DB, handler, c)
		signal(t, third.Ready(), "it reads the others")
		third.stop(t)
		require.Len(t, handler.ids(), 1)
	})
}
