package schedule

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// started is a message that was handed out so often and has not come back.
func started(id int64, topic string, key int64, starts int) *spool.Message {
	m := stored(id, topic, key)
	m.Starts = starts
	return m
}

// settle does what a drainer does with what was finished.
func (s *Scheduler) settle() {
	s.Settled(s.TakeFinished())
}

func TestScheduler_suspects_run_one_at_a_time(t *testing.T) {
	t.Parallel()
	s := ready(3)
	s.Load([]*spool.Message{
		stored(1, "a", 0), started(2, "a", 0, 1), started(3, "a", 7, 2), stored(4, "a", 7), stored(5, "a", 0), started(6, "b", 0, 1),
	})
	require.Equal(t, []int64{1}, ids(s.TryTake()), "a batch ends before a suspect")
	require.Equal(t, []int64{6}, ids(s.TryTake()), "a suspect is a batch by itself")
	require.Equal(t, []int64{5}, ids(s.TryTake()), "those like it wait, and the key of one waits with it")
	require.Nil(t, s.TryTake())
}

// The outcome of a suspect must be written before the next one runs: if that one brings the process
// down, the innocent has not been started once more without an outcome.
func TestScheduler_a_suspect_waits_until_the_one_before_it_is_settled(t *testing.T) {
	t.Parallel()
	for _, verdict := range []spool.Verdict{spool.Done, spool.Retry, spool.Dead, spool.Wait, spool.Postpone, spool.Settled} {
		s := ready(1)
		s.Load([]*spool.Message{started(1, "a", 0, 1), started(2, "a", 7, 1), stored(3, "a", 7), stored(4, "a", 0)})
		innocent := s.TryTake()
		require.Equal(t, []int64{1}, ids(innocent))
		require.Equal(t, []int64{4}, ids(s.TryTake()), "others run beside it")
		require.Nil(t, s.TryTake())
		s.Finish(innocent, one(verdict))
		require.Nil(t, s.TryTake(), "it has come back, and nobody knows")
		s.settle()
		require.Equal(t, []int64{2}, ids(s.TryTake()), "now it is known")
		require.Nil(t, s.TryTake(), "and its key waits behind it")
	}
}

func TestScheduler_suspects_wait_although_the_running_one_loses_its_lane(t *testing.T) {
	t.Parallel()
	s := ready(1)
	lost := started(1, "a", 7, 1)
	lost.Ref.Lane = 5
	s.Load([]*spool.Message{lost, started(2, "a", 0, 1)})
	running := s.TryTake()
	require.Equal(t, []int64{1}, ids(running))
	s.Drop([]int{5})
	require.Nil(t, s.TryTake())
	s.Finish(running, one(spool.Postpone))
	s.settle()
	require.Equal(t, []int64{2}, ids(s.TryTake()))
}

func TestScheduler_forgets_waiting_suspects_that_are_dropped(t *testing.T) {
	t.Parallel()
	s := ready(1)
	s.Load([]*spool.Message{started(1, "a", 7, 1), started(2, "a", 8, 1), stored(3, "a", 8)})
	running := s.TryTake()
	require.Nil(t, s.TryTake(), "the second one is put aside")
	require.Len(t, s.DropAll(), 2)
	s.Finish(running, one(spool.Done))
	s.settle()
	require.Nil(t, s.TryTake())
	require.Empty(t, s.keys)
	require.Empty(t, s.topics.named)
	s.Load([]*spool.Message{started(2, "a", 8, 1)})
	require.Equal(t, []int64{2}, ids(s.TryTake()), "it can come again")
}
