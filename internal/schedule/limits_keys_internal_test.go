package schedule

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

func TestLimits_G3_of_each_key_keep_its_order_and_hold_up_no_other(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := limiting(3, postbox.Limits{EachKey: perSecond(1)})
		defer stop(s)
		pass(time.Minute) // a key that is new has its burst, since its lane has long been here
		r := &record{}
		s.Load([]*spool.Message{
			keyed(1, 7, true), keyed(2, 7, true), keyed(3, 8, true), keyed(4, 7, true), stored(5, "a", 0), stored(6, "a", 0),
		})
		r.work(s, 3, time.Millisecond)
		pass(10 * time.Millisecond)
		require.ElementsMatch(t, []int64{1, 3, 5, 6}, r.list())
		require.Equal(t, HeldUp{Keys: 2}, s.HeldUp())
		pass(1100 * time.Millisecond)
		pass(time.Second)
		require.Equal(t, []int64{2, 4}, r.list()[4:])
		s.Share([]int{1, 2})
		s.Share([]int{0, 1, 2})
		s.Load([]*spool.Message{keyed(9, 9, true)})
		pass(900 * time.Millisecond)
		require.Len(t, r.list(), 6, "the lane was away, and its keys begin empty")
		pass(200 * time.Millisecond)
		require.Len(t, r.list(), 7)
	})
}

func TestLimits_of_each_key_bound_what_runs_without_order(t *testing.T) {
	t.Parallel()
	s := limiting(2, postbox.Limits{EachKey: atOnce(2)})
	var list []*spool.Message
	for id := range int64(10) {
		list = append(list, keyed(id+1, 7, false))
	}
	s.Load(append(list, keyed(11, 8, false)))
	first := s.TryTake()
	require.Equal(t, []int64{1, 2}, ids(first))
	other := s.TryTake()
	require.Equal(t, []int64{11}, ids(other))
	require.Nil(t, s.TryTake())
	s.Load([]*spool.Message{keyed(12, 7, false)})
	s.Finish(other, one(spool.Done))
	require.Nil(t, s.TryTake())
	for _, want := range [][]int64{{3, 4}, {5, 6}, {7, 8}, {9, 10}, {12}} {
		s.Finish(first, make([]spool.Outcome, len(first)))
		s.settle()
		first = s.TryTake()
		require.Equal(t, want, ids(first), "in turn")
	}
}

func TestLimits_G8_remember_few_keys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := limiting(1, postbox.Limits{EachKey: perSecond(1)})
		pass(time.Minute)
		s.limits.few, s.limits.most = 50, 200
		s.limits.prune = s.limits.few
		for id := range int64(500) {
			s.Load([]*spool.Message{keyed(id+1, id+1, true)})
			batch := s.TryTake()
			s.Finish(batch, one(spool.Done))
			s.settle()
			pass(20 * time.Millisecond)
		}
		require.Less(t, len(s.limits.keys), 150, "those with a full bucket are forgotten")
		for id := int64(1000); len(s.limits.keys) < 300; id++ {
			s.limits.prune = 1000
			s.Load([]*spool.Message{keyed(id, id, true)})
			s.Finish(s.TryTake(), one(spool.Done))
			s.settle()
		}
		s.limits.prune = 0
		s.Load([]*spool.Message{keyed(1e6, 1e6, true)})
		require.Len(t, s.limits.keys, 1, "too many are forgotten together")
		require.Nil(t, s.TryTake(), "and then new keys begin empty")
		pass(time.Second + time.Millisecond)
		require.NotNil(t, s.TryTake())
	})
}

func TestLimits_G8_leave_out_of_reads_what_waits_for_them_in_great_number(t *testing.T) {
	t.Parallel()
	s := limiting(1, postbox.Limits{Topics: map[string]postbox.Limit{"a": atOnce(8), "b": atOnce(8)}, EachKey: atOnce(1)})
	take := func() (batches [][]*Entry) {
		for batch := s.TryTake(); batch != nil; batch = s.TryTake() {
			batches = append(batches, batch)
		}
		return batches
	}
	require.Empty(t, s.LeftOut(40))
	s.Load(backlog(40, "a", "a", "a", "b")) // 30 and 10
	running := take()
	require.Equal(t, []string{"a", "b"}, s.LeftOut(80).Topics, "each has half of it")
	done := func(topic string) {
		running = slices.DeleteFunc(running, func(batch []*Entry) bool {
			ends := batch[0].Message.Topic == topic
			if ends {
				s.Finish(batch, one(spool.Done))
			}
			return ends
		})
		s.settle()
		running = append(running, take()...)
	}
	done("b")
	require.Equal(t, []string{"a"}, s.LeftOut(80).Topics, "two of b are left")
	done("a")
	require.Equal(t, []string{"a"}, s.LeftOut(160).Topics, "22 are more than half")
	done("a")
	require.Empty(t, s.LeftOut(160).Topics)
	done("a")
	done("a")
	s.Load([]*spool.Message{keyed(101, 7, false), keyed(102, 7, false), keyed(103, 7, false), keyed(104, 8, false)})
	take()
	require.Equal(t, LeftOut{Keys: []int64{7}}, s.LeftOut(12))
}
