package drain_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/keyhash"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// watch observes the handlers of several processes.
type watch struct {
	mu      sync.Mutex
	running map[*process]int
	gone    map[*process]bool
	most    int // running at a time, in processes that hold their leases
	starts  []time.Time
	handled []string
}

func newWatch() *watch { return &watch{running: map[*process]int{}, gone: map[*process]bool{}} }

func (w *watch) enter(p *process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running[p]++
	w.starts = append(w.starts, time.Now())
	all := 0
	for p, n := range w.running {
		if !w.gone[p] {
			all += n
		}
	}
	w.most = max(w.most, all)
}

func (w *watch) leave(p *process, batch []*spool.Message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running[p]--
	for _, m := range batch {
		w.handled = append(w.handled, m.MessageID)
	}
}

// kill ends a process and its leases. Its handlers no longer count, and stand still.
func (w *watch) kill(p *process) {
	w.mu.Lock()
	w.gone[p] = true
	w.mu.Unlock()
	p.kill()
}

// inRate checks each time between two starts. The handlers begin a little later than their messages
// are handed out, at most as many as there are workers.
func (w *watch) inRate(t *testing.T, rate float64, processes, workers int) {
	t.Helper()
	slices.SortFunc(w.starts, time.Time.Compare)
	for i := range w.starts {
		for j := i; j < len(w.starts); j++ {
			allowed := rate*(w.starts[j].Sub(w.starts[i]).Seconds()+0.75) + float64(processes*workers)
			if float64(j-i+1) > allowed {
				require.LessOrEqual(t, float64(j-i+1), allowed, "from start %d to %d", i, j)
			}
		}
	}
}

// handler works for a moment.
func (w *watch) handler(p *process) drain.Handler { return &watched{watch: w, p: p} }

type watched struct {
	*watch

	p *process
}

func (h *watched) Excluded() []string { return nil }

func (h *watched) Handle(ctx context.Context, batch []*spool.Message) []spool.Outcome {
	h.enter(h.p)
	select {
	case <-time.After(3 * time.Millisecond):
		h.leave(h.p, batch)
	case <-h.p.dead:
		<-ctx.Done()
	}
	return make([]spool.Outcome, len(batch))
}

// comeAndGo has processes handle messages while some begin, stop and crash.
func (b *bench) comeAndGo(w *watch, limits postbox.Limits) {
	b.T.Helper()
	limited := func(c *drain.Config) {
		c.Limits, c.Workers, c.BatchSize, c.PageSize = limits, lanes, 1, 10*lanes
	}
	const part = 60
	round := 0
	write := func() {
		b.Append(b.Database.DB, drafts((round+1)*part, func(i int) string { return fmt.Sprint(i % 30) })[round*part:]...)
		round++
	}
	write()
	one := b.spawn("one", w.handler, limited)
	two := b.spawn("two", w.handler, limited)
	signal(b.T, two.Ready(), "both are there")
	write()
	three := b.spawn("three", w.handler, limited)
	signal(b.T, three.Ready(), "a third one comes")
	b.Eventually(func() bool { return b.Pending() < part }, "they work")
	write()
	one.stop(b.T)
	b.Eventually(func() bool { return b.Pending() < part }, "two are left")
	write()
	four := b.spawn("four", w.handler, limited)
	signal(b.T, four.Ready(), "another one comes")
	for _, p := range []*process{two, three} {
		if b.held(p.name) > 0 {
			w.kill(p)
			break
		}
	}
	b.Eventually(func() bool { return b.Pending() == 0 }, "and the others go on")
}

func TestDrainer_limits_of_calls_at_once_hold_while_processes_come_and_go(t *testing.T) {
	t.Parallel()
	for name, n := range map[string]int{"with slots for all lanes": lanes + 2, "with few slots": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, testdb.Postgres(t))
			w := newWatch()
			b.comeAndGo(w, postbox.Limits{Total: postbox.Limit{MaxConcurrent: n}})
			require.LessOrEqual(t, w.most, n)
			require.Greater(t, w.most, n/3, "and they are used")
		})
	}
}

func TestDrainer_limits_of_a_rate_hold_while_processes_come_and_go(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.Postgres(t))
	w := newWatch()
	const rate, processes, workers = 200, 4, lanes
	b.comeAndGo(w, postbox.Limits{Total: postbox.Limit{PerSecond: rate}})
	w.inRate(t, rate, processes, workers)
}

// Far more messages wait for the limit than fit into memory. They are handled in order, in many
// parts, and others are handled meanwhile.
func TestDrainer_G3_a_limited_topic_holds_up_no_other_and_keeps_its_order(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		c := config("one")
		c.Limits.Topics = map[string]postbox.Limit{"slow": {PerSecond: 0.001}}
		const messages = 400
		require.Less(t, 3*c.PageSize, messages)
		key := func(i int) string { return fmt.Sprint(i % 7) }
		b.Append(database.DB, ofTopics(drafts(messages, key), "slow")...)
		b.Append(database.DB, ofTopics(drafts(messages+60, key)[messages:], "free", "slow", "other")...)
		handler := &recorder{}
		first := b.start(database.DB, handler, c)
		b.Eventually(func() bool { return b.Pending() == messages+20 }, "the other topics flow")
		b.Append(database.DB, ofTopics(drafts(messages+70, key)[messages+60:], "free")...)
		b.Eventually(func() bool { return b.Pending() == messages+20 }, "and their new messages do")
		require.Empty(t, startingWith(handler.ids(), "slow"))
		first.stop(t)
		require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_messages WHERE attempts > 0 OR state > 0"), "waiting costs no attempt")

		c = config("two")
		c.Limits.Topics = map[string]postbox.Limit{"slow": {PerSecond: 2000}}
		b.start(database.DB, handler, c)
		b.Eventually(func() bool { return b.Pending() == 0 }, "with a higher limit it goes on")
		require.Len(t, handler.ids(), messages+70, "each message once")
		for k := range 7 {
			ofKey := slices.DeleteFunc(startingWith(handler.ids(), "slow"), func(id string) bool {
				var n int
				_, err := fmt.Sscanf(id, "slow %d", &n)
				require.NoError(t, err)
				return n%7 != k
			})
			require.True(t, slices.IsSorted(ofKey), "key %d: %v", k, ofKey)
		}
	})
}

// keysOfLanes returns a key of each lane.
func keysOfLanes() []string {
	keys := make([]string, lanes)
	for n, found := 0, 0; found < lanes; n++ {
		key := fmt.Sprint(n)
		if lane := keyhash.Lane(keyhash.Of(key), lanes); keys[lane] == "" {
			keys[lane] = key
			found++
		}
	}
	return keys
}

// Several limited topics have fewer messages than fit into memory, and together far more. Before a
// message is handed out it is not known that its topic has to wait. So they fill the memory while
// all workers are busy: each topic has a lane, and each read takes the same number of each.
func TestDrainer_G8_many_limited_topics_hold_up_no_other(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		const topics, each = lanes, 60
		names, slow, fast := make([]string, topics), map[string]postbox.Limit{}, map[string]postbox.Limit{}
		for i := range names {
			names[i] = fmt.Sprint("slow", i)
			slow[names[i]], fast[names[i]] = postbox.Limit{PerSecond: 0.001}, postbox.Limit{PerSecond: 3000}
		}
		c := config("one")
		require.Less(t, 3*c.PageSize, topics*each)
		c.Limits.Topics, c.BatchSize = slow, 1
		began, released := make(chan struct{}, c.Workers), make(chan struct{})
		release := sync.OnceFunc(func() { close(released) })
		handler := &recorder{do: func(m *spool.Message) error {
			if m.Topic == "busy" {
				began <- struct{}{}
				<-released
			}
			return nil
		}}
		b.Append(database.DB, ofTopics(drafts(c.Workers, func(int) string { return "" }), "busy")...)
		first := b.start(database.DB, handler, c)
		t.Cleanup(release)
		for range c.Workers {
			signal(t, began, "all workers are busy")
		}
		keys := keysOfLanes()
		key := func(i int) string { return keys[i%topics] }
		require.NoError(t, spool.InTx(t.Context(), database.DB, b.Statements, func(tx *sql.Tx) error { // a read sees all of them
			return b.Spool.Append(t.Context(), tx, spool.Run, ofTopics(drafts(topics*each, key), names...))
		}))
		b.Eventually(func() bool {
			_, _, waiting := first.Applied()
			return waiting > 3*c.PageSize/2
		}, "the memory is full")
		release()
		for n := range 3 {
			b.Append(database.DB, ofTopics(drafts(topics*each+n+1, key)[topics*each+n:], "free")...)
			b.Eventually(func() bool { return len(handler.ids()) == c.Workers+n+1 }, "a topic without a limit goes on")
		}
		first.stop(t)
		c = config("two")
		c.Limits.Topics = fast
		b.start(database.DB, handler, c)
		b.Eventually(func() bool { return b.Pending() == 0 }, "with higher limits all go on")
		require.Len(t, handler.ids(), c.Workers+topics*each+3, "each message once")
		for _, name := range names {
			require.True(t, slices.IsSorted(startingWith(handler.ids(), name)), name)
		}
	})
}
