package schedule

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

func ready(batchSize int) *Scheduler {
	s := New(batchSize, nil)
	s.SetWorkers(1 << 10)
	s.Extend(time.Now().Add(time.Hour))
	return s
}

func stored(id int64, topic string, key int64) *spool.Message {
	m := &spool.Message{Ref: dialect.Ref{ID: id}, Topic: topic, HasKey: key != 0, KeyHash: key}
	if m.HasKey {
		m.Key = strconv.FormatInt(key, 10)
	}
	return m
}

func ids(batch []*Entry) []int64 {
	list := make([]int64, len(batch))
	for i, e := range batch {
		list[i] = e.Message.Ref.ID
	}
	return list
}

func one(verdict spool.Verdict) []spool.Outcome { return []spool.Outcome{{Verdict: verdict}} }

func TestScheduler_topics_take_turns(t *testing.T) {
	t.Parallel()
	s := ready(2)
	s.Load([]*spool.Message{stored(1, "a", 0), stored(2, "a", 0), stored(3, "a", 0), stored(4, "b", 0)})
	require.Equal(t, []int64{1, 2}, ids(s.Take()))
	require.Equal(t, []int64{4}, ids(s.Take()))
	require.Equal(t, []int64{3}, ids(s.Take()))
}

// However many messages a batch may have, their payloads are loaded together.
func TestScheduler_G8_a_batch_of_large_messages_is_bounded_in_bytes(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]int64{"without a key": 0, "of one key": 9} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := ready(100)
			var messages []*spool.Message
			for id, size := range []int{MaxBatchBytes / 2, MaxBatchBytes / 2, 1, 4 * MaxBatchBytes, 1, MaxBatchBytes - 1, 1} {
				m := stored(int64(id+1), "a", key)
				m.Size = size
				messages = append(messages, m)
			}
			s.Load(messages)
			for _, want := range [][]int64{{1, 2}, {3}, {4}, {5, 6}, {7}} {
				batch := s.Take()
				require.Equal(t, want, ids(batch))
				s.Finish(batch, make([]spool.Outcome, len(batch)))
			}
		})
	}
}

func TestScheduler_a_late_committer_goes_before_messages_read_earlier(t *testing.T) {
	t.Parallel()
	s := ready(1)
	s.Load([]*spool.Message{stored(5, "a", 9), stored(7, "a", 9)})
	s.Load([]*spool.Message{stored(3, "b", 9), stored(6, "a", 9)})
	for _, want := range []int64{3, 5, 6, 7} {
		batch := s.Take()
		require.Equal(t, []int64{want}, ids(batch))
		s.Finish(batch, one(spool.Done))
	}
}

func TestScheduler_key_is_closed_until_its_failure_is_settled(t *testing.T) {
	t.Parallel()
	s := ready(1)
	s.Load([]*spool.Message{stored(1, "a", 9), stored(2, "a", 9)})
	batch := s.Take()
	s.Finish(batch, one(spool.Retry))
	left := s.Load([]*spool.Message{stored(3, "a", 9)})
	require.Len(t, left, 1, "the database does not know yet that it must wait")
	finished := s.TakeFinished()
	require.Equal(t, []int64{1, 2}, ids(finished), "what stood behind it is put back")
	require.Equal(t, spool.Postpone, finished[1].Outcome.Verdict)
	s.Settled(finished)
	require.Empty(t, s.Load([]*spool.Message{stored(3, "a", 9)}))
	size, running := s.Size()
	require.Equal(t, 1, size)
	require.Zero(t, running)
}

// An earlier message of the key is settled while a later one fails: the key stays closed.
func TestScheduler_settling_one_batch_does_not_open_a_key_that_another_one_closed(t *testing.T) {
	t.Parallel()
	s := ready(1)
	s.Load([]*spool.Message{stored(1, "a", 9), stored(2, "a", 9)})
	s.Finish(s.Take(), one(spool.Done))
	finished := s.TakeFinished()
	s.Finish(s.Take(), one(spool.Retry))
	s.Settled(finished)
	require.Len(t, s.Load([]*spool.Message{stored(3, "a", 9)}), 1)
}

func TestScheduler_drop_forgets_a_lane(t *testing.T) {
	t.Parallel()
	s := ready(1)
	kept, dropped := stored(1, "a", 0), stored(2, "a", 9)
	dropped.Ref.Lane = 5
	s.Load([]*spool.Message{dropped, kept})
	s.Drop([]int{5})
	require.Equal(t, []int64{1}, ids(s.Take()))
	require.Zero(t, s.InLane(5))
	require.Empty(t, s.keys, "nothing of the key is remembered")
}

func TestScheduler_hands_out_nothing_after_the_lease(t *testing.T) {
	t.Parallel()
	s := ready(1)
	s.Extend(time.Now().Add(-time.Second))
	s.Load([]*spool.Message{stored(1, "a", 0)})
	taken := make(chan []*Entry)
	go func() { taken <- s.Take() }()
	select {
	case <-taken:
		require.Fail(t, "handed out")
	case <-time.After(20 * time.Millisecond): // it had the time
	}
	s.Extend(time.Now().Add(time.Hour))
	require.Len(t, <-taken, 1)
	s.Stop()
	require.Nil(t, s.Take())
}
