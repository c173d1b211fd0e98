package schedule

import (
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// All workers hang, and then all that have replaced them, on a topic that was idle before. Others
// replace these, too, but not at once.
func TestScheduler_more_workers_are_replaced_when_all_hang(t *testing.T) {
	t.Parallel()
	const most = 2
	s := ready(1)
	s.SetWorkers(most)
	var list []*spool.Message
	for id := range int64(4 * most) {
		list = append(list, stored(id+1, "a", 0))
	}
	s.Load(list)
	hang := func() (batches [][]*Entry) {
		for batch := s.TryTake(); batch != nil; batch = s.TryTake() {
			batches = append(batches, batch)
		}
		return batches
	}
	replace := func() int { return s.ReplaceHung(time.Now().Add(time.Hour)) }

	all := hang()
	require.Len(t, all, most)
	require.Zero(t, s.HungMessages())
	may, added := s.MayHang(len(all), true)
	require.True(t, may)
	require.False(t, added, "each of them has a worker in its place")
	require.Equal(t, most, replace())
	require.Equal(t, most, s.HungMessages(), "their messages")

	all = append(all, hang()...)
	require.Len(t, all, 2*most)
	may, _ = s.MayHang(len(all), false)
	require.False(t, may)
	require.Zero(t, replace())
	require.Empty(t, hang())
	may, added = s.MayHang(len(all), true)
	require.True(t, may)
	require.True(t, added)
	require.Equal(t, most, replace())
	all = append(all, hang()...)
	require.Len(t, all, 3*most)

	for _, batch := range all {
		s.Finish(batch, one(spool.Done))
	}
	require.Zero(t, s.HungMessages())
	may, _ = s.MayHang(most+1, false)
	require.False(t, may, "none is lost any more")
}

// The call of a suspect hangs. Other suspects do not wait for it, and still run one at a time.
func TestScheduler_G7_suspects_do_not_wait_for_one_that_hangs(t *testing.T) {
	t.Parallel()
	s := ready(1)
	for id, topic := range []string{"a", "b", "c"} {
		m := stored(int64(id+1), topic, 0)
		m.Starts = 1
		s.Load([]*spool.Message{m})
	}
	hangs := s.TryTake()
	require.Equal(t, []int64{1}, ids(hangs))
	require.Nil(t, s.TryTake())
	require.Equal(t, 1, s.ReplaceHung(time.Now().Add(time.Hour)))
	next := s.TryTake()
	require.Equal(t, []int64{2}, ids(next))
	s.Finish(hangs, one(spool.Done))
	s.Settled(s.TakeFinished())
	require.Nil(t, s.TryTake(), "another one is under way")
	s.Finish(next, one(spool.Done))
	s.Settled(s.TakeFinished())
	require.Equal(t, []int64{3}, ids(s.TryTake()))
}

// The row of the first message of a batch may be locked for long. The others are settled meanwhile.
func TestScheduler_a_message_that_is_held_keeps_no_others_in_memory(t *testing.T) {
	t.Parallel()
	s := ready(2)
	s.Load([]*spool.Message{stored(1, "a", 0), stored(2, "a", 0)})
	batch := s.TryTake()
	held, other := batch[0], weak.Make(batch[1].Message)
	s.Finish(batch, []spool.Outcome{{Verdict: spool.Done}, {Verdict: spool.Done}})
	s.TakeFinished()
	s.CloseKey(held)
	s.Settled(batch[1:])
	runtime.GC()
	require.Nil(t, other.Value())
	s.Settled([]*Entry{held})
}

// Calls for a topic with a limit hang, and have more of its messages than may wait for the limit.
// Reads leave the topic out only as long as others of its messages fill the memory.
func TestScheduler_G7_reads_leave_out_no_topic_whose_calls_hang(t *testing.T) {
	t.Parallel()
	const page = 8
	const slots = 32
	s, b := limited(1, postbox.Limits{Topics: map[string]postbox.Limit{"a": atOnce(slots)}}), newBank(1)
	s.SetWorkers(slots + 1)
	s.Load(backlog(slots+1, "a"))
	require.Nil(t, s.TryTake())
	b.answer(s)
	var hang []*Entry
	for batch := s.TryTake(); batch != nil; batch = s.TryTake() {
		hang = append(hang, batch...)
	}
	require.Len(t, hang, slots)
	require.Equal(t, []string{"a"}, s.LeftOut(page))
	s.ReplaceHung(time.Now().Add(time.Hour))
	require.Empty(t, s.LeftOut(page), "one message waits")
	for _, e := range hang {
		s.Finish([]*Entry{e}, one(spool.Done))
	}
	s.settle()
	require.Equal(t, []int64{slots + 1}, ids(s.TryTake()))
	require.Empty(t, s.LeftOut(page))
}

// Reads leave out the key of a call that hangs in all topics, but in a topic with a limit the key
// has an order of its own. So what says that it is left out holds until what the reads have left
// out is read again, and not only until the call returns.
func TestScheduler_G3_a_message_is_lost_until_it_is_settled(t *testing.T) {
	t.Parallel()
	s := limited(1, postbox.Limits{Topics: map[string]postbox.Limit{"a": atOnce(32)}})
	m := keyed(1, 7, true)
	s.Load([]*spool.Message{m})
	require.Nil(t, s.TryTake())
	newBank(1).answer(s)
	batch := s.TryTake()
	require.Empty(t, s.HungEntries())
	s.ReplaceHung(time.Now().Add(time.Hour))
	require.Equal(t, batch, s.HungEntries())
	s.Finish(batch, one(spool.Done))
	require.Equal(t, batch, s.HungEntries(), "its key has messages of other topics that reads have left out")
	s.settle()
	require.Empty(t, s.HungEntries())
}
