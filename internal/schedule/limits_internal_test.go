package schedule

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// bank is the database's part of limits, for the schedulers that ask it.
type bank struct {
	mu      sync.Mutex
	free    map[string]int64
	slots   map[string]map[int64]*Scheduler
	members int
}

func newBank(members int) *bank {
	return &bank{free: map[string]int64{}, slots: map[string]map[int64]*Scheduler{}, members: members}
}

// answer does what a step of a drainer does.
func (b *bank) answer(s *Scheduler) {
	b.mu.Lock()
	defer b.mu.Unlock()
	asks, at := s.Asks(b.members)
	now := time.Now()
	if at.IsZero() || at.After(now) {
		return
	}
	for i := range asks {
		a := &asks[i]
		before, there := b.free[a.Topic]
		if !there {
			before = now.UnixMicro()
			b.free[a.Topic] = before
		}
		if a.Most > 0 {
			a.Tokens, b.free[a.Topic], a.Wait = a.Granted(before, now.UnixMicro())
			a.Wait = max(a.Wait, AskAgain)
		}
		taken := b.slots[a.Topic]
		if taken == nil {
			taken = map[int64]*Scheduler{}
			b.slots[a.Topic] = taken
		}
		for slot := int64(1); slot <= int64(a.Limit.MaxConcurrent); slot++ {
			if taken[slot] == s && !slices.Contains(a.Held, slot) {
				delete(taken, slot)
			}
			if taken[slot] == nil && len(a.Got) < a.Slots {
				taken[slot] = s
				a.Got = append(a.Got, slot)
			}
			if taken[slot] == s {
				a.Stored++
			}
		}
	}
	s.Grant(asks, now)
}

// taken returns how many slots of a limit are taken.
func (b *bank) taken(topic string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.slots[topic])
}

// serve answers a scheduler until it stops.
func (b *bank) serve(s *Scheduler) {
	for {
		b.answer(s)
		wait := time.Hour
		if _, at := s.Asks(b.members); !at.IsZero() {
			wait = max(time.Until(at), 0)
		}
		select {
		case <-s.ended:
			return
		case <-s.Changed:
		case <-time.After(wait):
		}
	}
}

// limited returns a scheduler with limits.
func limited(batchSize int, limits postbox.Limits) *Scheduler {
	s := ready(batchSize)
	s.SetLimits(limits)
	return s
}

// limiting returns a scheduler with limits, and the only process that asks for them.
func limiting(batchSize int, limits postbox.Limits) *Scheduler {
	s := limited(batchSize, limits)
	b := newBank(1)
	for topic := range limits.Topics {
		b.free[topic] = time.Now().UnixMicro()
	}
	b.free[""] = time.Now().UnixMicro()
	go b.serve(s)
	return s
}

func perSecond(n float64) postbox.Limit { return postbox.Limit{PerSecond: n} }

func atOnce(n int) postbox.Limit { return postbox.Limit{MaxConcurrent: n} }

// keyed is a message with a key of its own name, which queues that are Unordered do not keep in
// order.
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

// inBounds checks each time between two starts: no more than the limit allows, and what may be
// saved up.
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
		require.InDelta(t, 40, len(r.list()), 1)
		s.Pause(true)
		pass(time.Minute)
		before := len(r.list())
		s.Pause(false)
		pass(time.Millisecond)
		require.LessOrEqual(t, len(r.list()), before+10, "half a second is saved up")
		r.inBounds(t, 20, 15)
	})
}

// Some processes have busy keys and others have none. What one does not use the others get.
func TestLimits_G8_processes_share_the_whole_rate_and_take_no_more(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		rate      float64
		processes int
		while     time.Duration
	}{{10, 1, time.Millisecond}, {10, 3, 20 * time.Millisecond}, {10, 3, 500 * time.Millisecond}, {0.5, 3, time.Millisecond}, {1000, 3, time.Millisecond}, {5000, 2, 100 * time.Microsecond}} {
		synctest.Test(t, func(t *testing.T) {
			r, b := &record{}, newBank(3)
			for i := range 3 {
				s := limited(1+i, postbox.Limits{Total: perSecond(test.rate)})
				defer stop(s)
				go b.serve(s)
				if i < test.processes {
					s.Load(backlog(int(test.rate*20+100), "a", "b"))
				}
				r.work(s, 4, test.while)
			}
			const seconds = 20
			pass(seconds * time.Second)
			count := len(r.list())
			t.Logf("%g/s, %d processes, %s: %.3f", test.rate, test.processes, test.while, float64(count)/seconds/test.rate)
			require.GreaterOrEqual(t, float64(count), 0.95*test.rate*seconds-3)
			if test.rate <= 1000 {
				r.mu.Lock()
				r.times = r.times[:min(len(r.times), 2000)]
				r.mu.Unlock()
				r.inBounds(t, test.rate, max(test.rate*0.75, 1))
			}
		})
	}
}

// Most workers wait in long calls of a slow topic. The others ask for what they use in a while, not
// only for as many messages as there are workers that wait.
func TestLimits_G8_long_calls_of_a_topic_do_not_slow_down_another_one(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const rate, seconds = 1000, 10
		s, b := limited(1, postbox.Limits{Total: perSecond(rate)}), newBank(1)
		defer stop(s)
		s.SetWorkers(50)
		go func() { // each answer takes a while
			for {
				b.answer(s)
				select {
				case <-s.ended:
					return
				case <-time.After(AskAgain):
				}
			}
		}()
		long := &record{}
		s.Load(backlog(45, "slow"))
		long.work(s, 45, 30*time.Second)
		pass(time.Second)
		require.Len(t, long.list(), 45)
		r, fast := &record{}, backlog(2*rate*seconds, "fast")
		for i := range fast {
			fast[i].Ref.ID += 100
		}
		s.Load(fast)
		r.work(s, 5, time.Millisecond)
		pass(seconds * time.Second)
		require.GreaterOrEqual(t, len(r.list()), rate*seconds*8/10)
	})
}

// A message needs a token and a slot, or two tokens, at the same time. A process that takes one of
// them while it waits for the other one loses it, and so would most of the rate be lost.
func TestLimits_G8_a_process_takes_only_tokens_that_it_can_use(t *testing.T) {
	t.Parallel()
	topic := func(limit postbox.Limit) map[string]postbox.Limit { return map[string]postbox.Limit{"a": limit} }
	for name, test := range map[string]struct {
		limits             postbox.Limits
		rate               float64
		processes, seconds int
		share              float64 // of the rate
	}{
		"a rate and a slot of the topic":          {postbox.Limits{Topics: topic(postbox.Limit{PerSecond: 20, MaxConcurrent: 1})}, 20, 4, 30, 0.9},
		"a rate in total and a slot of the topic": {postbox.Limits{Total: perSecond(2), Topics: topic(atOnce(1))}, 2, 4, 60, 0.9},
		"two slow rates that give tokens in turn": {postbox.Limits{Total: perSecond(0.5), Topics: topic(perSecond(0.5))}, 0.5, 2, 200, 0.45},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r, b := &record{}, newBank(test.processes)
				b.free[""], b.free["a"] = time.Now().UnixMicro(), time.Now().Add(time.Second).UnixMicro()
				most := test.rate * float64(test.seconds)
				for range test.processes {
					s := limited(1, test.limits)
					defer stop(s)
					go b.serve(s)
					s.Load(backlog(2*int(most), "a"))
					r.work(s, 4, time.Millisecond)
				}
				pass(time.Duration(test.seconds) * time.Second)
				require.GreaterOrEqual(t, float64(len(r.list())), test.share*most)
				r.inBounds(t, test.rate, test.rate*0.75+2)
			})
		})
	}
}

func TestLimits_ask_again_after_a_change_that_was_not_answered(t *testing.T) {
	t.Parallel()
	s := limited(1, postbox.Limits{Total: atOnce(2)})
	s.Grant(nil, time.Now())
	_, at := s.Asks(1)
	require.Zero(t, at)
	s.DoubtSlots()
	_, at = s.Asks(1)
	require.False(t, at.After(time.Now()), "asks at once, and gives back what it does not hold")
	require.NotZero(t, at)
}

// Each of three processes gets its turn, however few slots there are, and no more run than there
// are slots. One that is alone with its work has nearly all of the time.
func TestLimits_at_once_let_each_process_have_its_turn(t *testing.T) {
	t.Parallel()
	for _, slots := range []int{1, 2, 5, 40} {
		for _, busy := range []int{1, 3} {
			synctest.Test(t, func(t *testing.T) {
				b, list := newBank(3), []*record{}
				var mu sync.Mutex
				running, most, worked := 0, 0, time.Duration(0)
				const while, total = 7 * time.Millisecond, 30 * time.Second
				for i := range 3 {
					s := limited(1, postbox.Limits{Total: atOnce(slots)})
					s.SetWorkers(40)
					defer stop(s)
					go b.serve(s)
					r := &record{}
					list = append(list, r)
					if i >= busy {
						continue
					}
					s.Load(backlog(slots*5000, "a"))
					for range slots {
						go func() {
							for batch := s.Take(); batch != nil; batch = s.Take() {
								mu.Lock()
								running++
								most = max(most, running)
								mu.Unlock()
								pass(while)
								mu.Lock()
								running--
								worked += while
								mu.Unlock()
								r.mu.Lock()
								r.ids = append(r.ids, batch[0].Message.Ref.ID)
								r.mu.Unlock()
								s.Finish(batch, one(spool.Done))
								s.settle()
							}
						}()
					}
				}
				pass(total)
				mu.Lock()
				defer mu.Unlock()
				used := worked.Seconds() / total.Seconds() / float64(slots)
				t.Logf("%d slots, %d busy: %.3f used", slots, busy, used)
				require.LessOrEqual(t, most, slots)
				require.Greater(t, used, 0.85)
				for _, r := range list[:busy] {
					r.mu.Lock()
					require.Greater(t, len(r.ids), int(total/while)*slots/20)
					r.mu.Unlock()
				}
			})
		}
	}
}

func TestLimits_slots_are_given_back_when_nothing_is_to_do_and_at_a_stop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, s := newBank(2), limited(1, postbox.Limits{Topics: map[string]postbox.Limit{"a": atOnce(3)}})
		s.Load(backlog(5, "a"))
		go b.serve(s)
		require.Nil(t, s.TryTake(), "none is held")
		pass(time.Millisecond)
		batches := [][]*Entry{s.TryTake(), s.TryTake(), s.TryTake()}
		require.NotContains(t, batches, []*Entry(nil))
		require.Nil(t, s.TryTake())
		require.Equal(t, HeldUp{Topics: 2}, s.HeldUp())
		s.Finish(batches[0], one(spool.Done))
		batches[0] = s.TryTake()
		require.NotNil(t, batches[0])
		for _, batch := range batches[:2] {
			s.Finish(batch, one(spool.Done))
		}
		s.settle()
		last := s.TryTake()
		require.NotNil(t, last)
		pass(time.Second)
		require.Equal(t, 2, b.taken("a"), "two run")
		s.Finish(last, one(spool.Done))
		s.Stop()
		b.answer(s)
		require.Equal(t, 1, b.taken("a"))
		s.Finish(batches[2], one(spool.Done))
		b.answer(s)
		require.Zero(t, b.taken("a"))
	})
}

func TestLimits_of_a_topic_hold_up_no_other(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := limiting(4, postbox.Limits{Topics: map[string]postbox.Limit{"slow": perSecond(10), "few": atOnce(32)}})
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
		require.InDelta(t, 10, of(1), 1)
	})
}

// The same messages pass through each of the ways in which a batch is made.
func TestLimits_concern_large_messages_and_suspects(t *testing.T) {
	t.Parallel()
	for name, limits := range map[string]postbox.Limits{
		"in total": {Total: perSecond(10)},
		"a topic":  {Topics: map[string]postbox.Limit{"a": perSecond(10)}},
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
				r.inBounds(t, 10, 7.5)
			})
		})
	}
}

func TestLimits_let_a_gathered_batch_start_when_all_its_messages_may(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New(4, &Gather{Due: func(time.Time) time.Time { return time.Time{} }})
		s.SetWorkers(2)
		s.Extend(time.Now().Add(time.Hour))
		s.SetLimits(postbox.Limits{Total: perSecond(1)})
		go newBank(1).serve(s)
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
	s, b := ready(1), newBank(1)
	s.Load(backlog(6, "a"))
	first, second := s.TryTake(), s.TryTake()
	s.SetLimits(postbox.Limits{Total: atOnce(2), Topics: map[string]postbox.Limit{"a": atOnce(2)}})
	try := func() []*Entry {
		for range 3 { // the gate of the spool, and that of the topic
			if batch := s.TryTake(); batch != nil {
				return batch
			}
			b.answer(s)
		}
		return nil
	}
	require.Nil(t, try(), "two run")
	s.Finish(first, one(spool.Done))
	s.Finish(second, one(spool.Done))
	s.settle()
	third, fourth := try(), try()
	require.NotNil(t, fourth)
	require.Nil(t, try(), "two run")
	s.SetLimits(postbox.Limits{})
	require.NotNil(t, s.TryTake())
	require.NotNil(t, s.TryTake())
	s.Finish(third, one(spool.Done))
	require.Nil(t, s.limits)
}

// Without limits, a batch costs as much as before there were any.
func BenchmarkScheduler(b *testing.B) {
	for name, limits := range map[string]postbox.Limits{
		"without limits": {}, "total": {Total: postbox.Limit{PerSecond: 1e6, MaxConcurrent: 1 << 20}},
	} {
		b.Run(name, func(b *testing.B) {
			s := limiting(1, limits)
			defer s.Stop()
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
