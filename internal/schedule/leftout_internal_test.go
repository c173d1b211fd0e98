package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// reader reads pages of messages for a scheduler, as the drainer does, from a list instead of a
// database. The list is in the order of ids.
type reader struct {
	*Scheduler

	t       *testing.T
	page    int
	stored  []*spool.Message
	handled map[int64]bool
}

// full is the number of messages in memory beyond which the drainer reads nothing: see its
// roomBeside.
func (r *reader) full() int { return r.page * 3 / 2 }

// step makes room, reads a page and hands out everything that may start.
func (r *reader) step() {
	left := r.LeftOut(r.page)
	inMemory, _ := r.Size()
	if inMemory > r.full() {
		before := inMemory
		dropped := r.MakeRoom()
		inMemory, _ = r.Size()
		require.Equal(r.t, before-len(dropped), inMemory)
	}
	if inMemory <= r.full() {
		r.read(left)
	}
	for batch := r.TryTake(); batch != nil; batch = r.TryTake() {
		for _, e := range batch {
			require.False(r.t, r.handled[e.Message.Ref.ID], "each message once")
			r.handled[e.Message.Ref.ID] = true
		}
		r.Finish(batch, make([]spool.Outcome, len(batch)))
		r.settle()
	}
	r.stored = slices.DeleteFunc(r.stored, func(m *spool.Message) bool { return r.handled[m.Ref.ID] })
}

// read loads the first messages that are not in memory, except those that are left out.
func (r *reader) read(left []string) {
	var found []*spool.Message
	for _, m := range r.stored {
		if len(found) == r.page {
			break
		}
		leaves := slices.Contains(left, m.Topic)
		if r.messages[m.Ref.ID] == nil && !leaves {
			found = append(found, m)
		}
	}
	r.Load(found)
}

// crowded returns a reader with a page of random size, and several limited topics with long queues
// of random length.
func crowded(t *testing.T, random *rand.Rand) *reader {
	t.Helper()
	page, groups := 8+random.IntN(50), 1+random.IntN(30)
	limits := postbox.Limits{Topics: map[string]postbox.Limit{}}
	var list []*spool.Message
	for group := range min(groups, page/4) {
		name := fmt.Sprint("topic ", group)
		limits.Topics[name] = []postbox.Limit{perSecond(0.01), perSecond(1), atOnce(32)}[random.IntN(3)]
		byKey := random.IntN(2) == 0
		for range random.IntN(2 * page) {
			m := stored(0, name, 0)
			if byKey {
				m = keyed(0, int64(group+1), true)
				m.Topic = name
			}
			list = append(list, m)
		}
	}
	random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	for i, m := range list {
		m.Ref.ID, m.Ref.CreatedAt = int64(i+1), int64(i+1)
	}
	s := limiting(1+random.IntN(4), limits)
	return &reader{Scheduler: s, t: t, page: page, stored: list, handled: map[int64]bool{}}
}

// Whatever waits for limits, an unlimited message is handed out after few reads, and each limited
// topic and key goes on in its order.
func TestLimits_that_hold_up_many_topics_and_keys_leave_room_for_all_others(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a test
			r := crowded(t, random)
			defer stop(r.Scheduler)
			steps := 20 + len(r.stored)/r.page
			for id := int64(1_000_000); id < 1_000_005; id++ {
				for range random.IntN(steps) {
					r.step()
					pass(time.Duration(random.IntN(300)) * time.Millisecond)
				}
				r.stored = append(r.stored, stored(id, "unlimited", 0))
				for range steps {
					r.step()
				}
				require.True(t, r.handled[id], "seed %d: %d of %d in memory, page %d", seed, len(r.messages), len(r.stored), r.page)
			}
		})
	}
}

func TestLimits_G3_messages_that_made_room_come_back_in_their_order(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := limiting(1, postbox.Limits{Topics: map[string]postbox.Limit{"slow": perSecond(1)}})
		defer stop(s)
		var list []*spool.Message
		for id := range int64(60) {
			m := keyed(id+1, id%3, true)
			m.Topic = "slow"
			list = append(list, m)
		}
		s.Load(list)
		require.Nil(t, s.TryTake(), "nothing is saved up")
		require.Empty(t, s.MakeRoom(), "nothing is left out")
		require.Equal(t, []string{"slow"}, s.LeftOut(20))
		dropped := s.MakeRoom()
		require.Len(t, dropped, 55, "a quarter of a page stays")
		require.EqualValues(t, 6, slices.MinFunc(dropped, func(a, b *spool.Message) int { return int(a.Ref.ID - b.Ref.ID) }).Ref.ID)
		s.Load(list)
		r := &record{}
		r.work(s, 2, time.Millisecond)
		pass(61 * time.Second)
		require.Len(t, r.list(), 60)
		for key := range int64(3) {
			ofKey := slices.DeleteFunc(r.list(), func(id int64) bool { return (id-1)%3 != key })
			require.Len(t, ofKey, 20)
			require.True(t, slices.IsSorted(ofKey), "%v", ofKey)
		}
	})
}

// A limit that is not reached costs no reads: messages of its topic and keys fill the memory as
// those without a limit do.
func TestLimits_that_hold_up_no_message_leave_nothing_out(t *testing.T) {
	t.Parallel()
	for name, limits := range map[string]postbox.Limits{
		"topic": {Topics: map[string]postbox.Limit{"topic": {PerSecond: 1_000_000}}},
	} {
		synctest.Test(t, func(t *testing.T) {
			const page = 20
			s := limiting(1, limits)
			defer stop(s)
			pass(time.Second)
			require.Empty(t, s.LeftOut(page), name)
			var list []*spool.Message
			for id := range int64(3 * page) {
				m := keyed(id+1, 1, true)
				m.Topic = "topic"
				list = append(list, m)
			}
			s.Load(list)
			require.Empty(t, s.LeftOut(page), name)
			require.Nil(t, s.TryTake(), "nothing is granted yet")
			pass(time.Millisecond)
			require.Len(t, s.TryTake(), 1, name)
			require.Empty(t, s.LeftOut(page), name)
		})
	}
}

func TestLimits_tell_the_drainer_of_a_full_memory_when_one_begins_to_hold_up_messages(t *testing.T) {
	t.Parallel()
	s := limited(1, postbox.Limits{Topics: map[string]postbox.Limit{"slow": perSecond(0.1)}})
	defer s.Stop()
	s.Load(backlog(9, "slow"))
	told := func() bool {
		select {
		case <-s.Changed:
			return true
		default:
			return false
		}
	}
	require.Empty(t, s.LeftOut(4))
	require.Nil(t, s.TryTake())
	require.True(t, told(), "it asks")
	require.False(t, told(), "there is room")
	s.MakeRoom()
	require.True(t, told(), "it began after the decision what to leave out")
	require.Equal(t, []string{"slow"}, s.LeftOut(4))
	require.Len(t, s.MakeRoom(), 8)
	require.False(t, told())
}
