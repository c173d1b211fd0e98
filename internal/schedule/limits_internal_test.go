package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

const ofLanes = dialect.Lanes

// allLanes are their numbers.
func allLanes() (all []int) {
	for lane := range ofLanes {
		all = append(all, lane)
	}
	return all
}

// limiting is a scheduler with limits, which holds all lanes.
func limiting(batchSize int, limits postbox.Limits) *Scheduler {
	s := ready(batchSize)
	s.SetLimits(limits)
	s.Share(allLanes())
	return s
}

func perSecond(n float64) postbox.Limit { return postbox.Limit{PerSecond: n} }

func atOnce(n int) postbox.Limit { return postbox.Limit{AtOnce: n} }

// keyed is a message with a key of its own name, which queues of mode Single do not keep in order.
func keyed(id int64, key int64, ordered bool) *spool.Message {
	m := stored(id, "a", key)
	m.Key, m.HasKey = fmt.Sprint(key), ordered
	return m
}

// record remembers which messages were handed out, and when.
type record struct {
	mu    sync.Mutex
	ids   []int64
	times []time.Time
}

// work hands out what there is, in so many workers, each of which takes a while for a batch.
func (r *record) work(s *Scheduler, workers int, while time.Duration) {
	for range workers {
		go func() {
			for batch := s.Take(); batch != nil; batch = s.Take() {
				r.mu.Lock()
				for _, e := range batch {
					r.ids, r.times = append(r.ids, e.Message.Ref.ID), append(r.times, time.Now())
				}
				r.mu.Unlock()
				pass(while)
				s.Finish(batch, make([]spool.Outcome, len(batch)))
				s.settle()
			}
		}()
	}
}

// pass lets time pass, by the clock of the test.
func pass(d time.Duration) { <-time.After(d) }

// stop lets the workers end.
func stop(s *Scheduler) {
	s.Stop()
	pass(time.Minute)
}

func (r *record) list() []int64 {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.ids)
}

// inBounds checks each time between two starts: no more than the limit allows, and what may be saved up.
func (r *record) inBounds(t *testing.T, perSecond, savedUp float64) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.SortFunc(r.times, time.Time.Compare)
	for i := range r.times {
		for j := i; j < len(r.times); j++ {
			allowed := perSecond*r.times[j].Sub(r.times[i]).Seconds() + savedUp
			if float64(j-i+1) > allowed+0.01 {
				require.LessOrEqual(t, float64(j-i+1), allowed, "from %d to %d", i, j)
			}
		}
	}
}

func backlog(messages int, topics ...string) []*spool.Message {
	list := make([]*spool.Message, messages)
	for i := range list {
		list[i] = stored(int64(i+1), topics[i%len(topics)], 0)
	}
	return list
}

func TestLimits_of_a_rate_let_messages_start_evenly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := limiting(1, postbox.Limits{Total: perSecond(20)})
		defer stop(s)
		r := &record{}
		s.Load(backlog(100, "a"))
		r.work(s, 5, time.Millisecond)
		pass(40 * time.Millisecond)
		require.Empty(t, r.list(), "nothing is saved up at the beginning")
		pass(2 * time.Second)
		require.Len(t, r.list(), 40)
		s.Pause(true)
		pass(time.Minute)
		s.Pause(false)
		require.Len(t, r.list(), 42, "a tenth of a second is saved up")
		r.inBounds(t, 20, 2)
	})
}

// Lanes move between three processes at random, which each know only their own.
func TestLimits_G8_shares_of_processes_that_come_and_go_never_add_up_to_more_than_the_rate(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a test
			const rate, processes = 50, 3
			r := &record{}
			list := make([]*Scheduler, processes)
			holders := make([]int, ofLanes)
			share := func() {
				for i, s := range list {
					var held []int
					for lane, holder := range holders {
						if holder == i {
							held = append(held, lane)
						}
					}
					s.Share(held)
				}
			}
			for i := range list {
				list[i] = ready(1 + i)
				list[i].SetLimits(postbox.Limits{Total: perSecond(rate)})
				list[i].Load(backlog(1000, "a", "b"))
				defer stop(list[i])
				r.work(list[i], 4, time.Millisecond)
			}
			share()
			for range 100 {
				pass(time.Duration(random.IntN(100)) * time.Millisecond)
				holders[random.IntN(ofLanes)] = random.IntN(processes)
				share()
			}
			elapsed := r.times[len(r.times)-1].Sub(r.times[0]).Seconds()
			require.Greater(t, float64(len(r.list())), 0.8*rate*elapsed, "and they use what they have")
			r.inBounds(t, rate, rate/burstShare+processes)
		})
	}
}

// Two processes have two busy keys each, and the third one has none. Its share of the rate stays
// unused, as docs/limits.md says.
func TestLimits_few_keys_leave_a_part_of_the_rate_unused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const rate, seconds = 10, 60
		r, held := &record{}, allLanes()
		for _, lanes := range [][]int{held[:11], held[11:22], held[22:]} {
			s := ready(1)
			s.SetLimits(postbox.Limits{Total: perSecond(rate)})
			s.Share(lanes)
			defer stop(s)
			if lanes[0] < 22 {
				s.Load(backlog(1000, "a", "b"))
			}
			r.work(s, 4, time.Millisecond)
		}
		pass(seconds * time.Second)
		require.InDelta(t, rate*seconds*22/ofLanes, len(r.list()), 3)
	})
}

func TestLimits_slots_of_all_lanes_are_those_of_the_limit(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 70; n += 3 {
		sum := 0
		for lane := range ofLanes {
			slots := slotsOf(lane, n)
			sum += slots
			alone := Alone(postbox.Limits{Total: atOnce(n)})
			require.Equal(t, alone && lane > 0, slots == 0, "no lane is held in vain")
		}
		require.Equal(t, n, sum)
	}
	require.True(t, Alone(postbox.Limits{Topics: map[string]postbox.Limit{"a": atOnce(ofLanes - 1)}}))
	require.False(t, Alone(postbox.Limits{EachKey: atOnce(1), Total: perSecond(1)}))
}

func TestLimits_at_once_bound_what_runs_and_which_lanes_are_handed_back(t *testing.T) {
	t.Parallel()
	s := limiting(1, postbox.Limits{Total: atOnce(ofLanes + 2)}) // lanes 0 and 1 have two slots
	s.Share([]int{0, 1, 2})
	s.Load(backlog(10, "a"))
	var running [][]*Entry
	for range 5 {
		running = append(running, s.TryTake())
	}
	require.NotContains(t, running, []*Entry(nil))
	require.Nil(t, s.TryTake())
	require.Equal(t, HeldUp{Total: 5}, s.HeldUp())
	s.Share([]int{0, 1})
	require.False(t, s.Spares([]int{0, 1}), "five run")
	s.Finish(running[0], one(spool.Done))
	require.True(t, s.Spares([]int{0, 1}))
	require.Nil(t, s.TryTake(), "four run with four slots")
	s.Finish(running[1], one(spool.Done))
	require.NotNil(t, s.TryTake())
}

func TestLimits_of_a_topic_hold_up_no_other(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := limiting(4, postbox.Limits{Topics: map[string]postbox.Limit{"slow": perSecond(10), "few": atOnce(ofLanes)}})
		defer stop(s)
		r := &record{}
		s.Load(backlog(90, "slow", "few", "free"))
		r.work(s, 40, time.Second)
		of := func(topic int64) int {
			return len(slices.DeleteFunc(r.list(), func(id int64) bool { return id%3 != topic }))
		}
		require.Equal(t, 30, of(0), "free")
		require.Equal(t, 30, of(2), "eight calls have room for all")
		require.Zero(t, of(1))
		require.Equal(t, HeldUp{Topics: 30}, s.HeldUp())
		pass(1050 * time.Millisecond)
		require.Equal(t, 10, of(1))
	})
}

// The same messages pass through each of the ways in which a batch is made.
func TestLimits_concern_large_messages_and_suspects(t *testing.T) {
	t.Parallel()
	for name, limits := range map[string]postbox.Limits{
		"in total": {Total: perSecond(10)},
		"a topic":  {Topics: map[string]postbox.Limit{"a": perSecond(10)}},
		"each key": {EachKey: perSecond(10)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := limiting(2, limits)
				defer stop(s)
				s.Bound(10)
				r := &record{}
				var list []*spool.Message
				for id := range int64(30) {
					m := keyed(id+1, 7, false)
					switch id % 3 {
					case 0:
						m.Size = 6 // one has room
					case 1:
						m.Starts, m.Loaded = 1, true
					default:
						m.Loaded = true
					}
					list = append(list, m)
				}
				s.Load(list)
				r.work(s, 5, 10*time.Millisecond)
				pass(5 * time.Second)
				require.Len(t, r.list(), 30)
				r.inBounds(t, 10, 1)
			})
		})
	}
}

func TestLimits_let_a_gathered_batch_start_when_all_its_messages_may(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New(4, &Gather{Due: func(time.Time) time.Time { return time.Time{} }})
		s.Limit(2)
		s.Extend(time.Now().Add(time.Hour))
		s.SetLimits(postbox.Limits{Total: perSecond(1)})
		s.Share(allLanes())
		defer stop(s)
		r := &record{}
		s.Load(backlog(9, "a"))
		r.work(s, 2, time.Millisecond)
		pass(3900 * time.Millisecond)
		require.Empty(t, r.list())
		pass(200 * time.Millisecond)
		require.Len(t, r.list(), 4)
		pass(4 * time.Second)
		require.Len(t, r.list(), 8, "the ninth waits for others")
	})
}

func TestLimits_that_are_set_later_count_what_runs_and_go_without_a_trace(t *testing.T) {
	t.Parallel()
	s := ready(1)
	list := append(backlog(4, "a"), keyed(9, 7, false), keyed(10, 7, false))
	s.Load(list)
	first, second := s.TryTake(), s.TryTake()
	limits := postbox.Limits{Total: atOnce(ofLanes), Topics: map[string]postbox.Limit{"a": atOnce(ofLanes)}, EachKey: atOnce(1)}
	s.SetLimits(limits)
	s.Share([]int{3, 4})
	require.Nil(t, s.TryTake(), "two run, and two lanes have two slots")
	s.Finish(first, one(spool.Done))
	s.Finish(second, one(spool.Done))
	s.settle()
	third, fourth := s.TryTake(), s.TryTake()
	s.Finish(third, one(spool.Done))
	s.Finish(fourth, one(spool.Done))
	s.settle()
	key := s.TryTake()
	require.Equal(t, []int64{9}, ids(key))
	require.Nil(t, s.TryTake(), "the key has one at a time")
	s.SetLimits(postbox.Limits{})
	require.Equal(t, []int64{10}, ids(s.TryTake()))
	s.Finish(key, one(spool.Done))
	require.Nil(t, s.limits)
}

// Without limits, a batch costs as much as before there were any.
func BenchmarkScheduler(b *testing.B) {
	for name, limits := range map[string]postbox.Limits{
		"without limits": {}, "total": {Total: postbox.Limit{PerSecond: 1e6, AtOnce: 1 << 20}}, "each key": {EachKey: perSecond(1e6)},
	} {
		b.Run(name, func(b *testing.B) {
			s := limiting(1, limits)
			m := []*spool.Message{keyed(1, 7, true)}
			outcomes := one(spool.Done)
			b.ReportAllocs()
			for range b.N {
				s.Load(m)
				batch := s.TryTake()
				if batch == nil { // waits for the rate
					s.DropAll()
					continue
				}
				s.Finish(batch, outcomes)
				s.Settled(s.TakeFinished())
			}
		})
	}
}
