package spool

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

func ready(batchSize int) *scheduler {
	s := newScheduler(batchSize, nil)
	s.limit(1 << 10)
	s.extend(time.Now().Add(time.Hour))
	return s
}

func stored(id int64, topic string, key int64) *Message {
	return &Message{Ref: dialect.Ref{ID: id}, Topic: topic, HasKey: key != 0, KeyHash: key}
}

func ids(batch []*entry) []int64 {
	list := make([]int64, len(batch))
	for i, e := range batch {
		list[i] = e.message.Ref.ID
	}
	return list
}

func one(verdict Verdict) []Outcome { return []Outcome{{Verdict: verdict}} }

func TestScheduler_topics_take_turns(t *testing.T) {
	t.Parallel()
	s := ready(2)
	s.load([]*Message{stored(1, "a", 0), stored(2, "a", 0), stored(3, "a", 0), stored(4, "b", 0)})
	require.Equal(t, []int64{1, 2}, ids(s.take()))
	require.Equal(t, []int64{4}, ids(s.take()))
	require.Equal(t, []int64{3}, ids(s.take()))
}

// However many messages a batch may have, their payloads are loaded together.
func TestScheduler_batch_of_large_messages_is_bounded_in_bytes_G8(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]int64{"without a key": 0, "of one key": 9} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := ready(100)
			var messages []*Message
			for id, size := range []int{MaxBatchBytes / 2, MaxBatchBytes / 2, 1, 4 * MaxBatchBytes, 1, MaxBatchBytes - 1, 1} {
				m := stored(int64(id+1), "a", key)
				m.size = size
				messages = append(messages, m)
			}
			s.load(messages)
			for _, want := range [][]int64{{1, 2}, {3}, {4}, {5, 6}, {7}} {
				batch := s.take()
				require.Equal(t, want, ids(batch))
				s.finish(batch, make([]Outcome, len(batch)))
			}
		})
	}
}

func TestScheduler_late_committer_goes_before_what_was_read_earlier(t *testing.T) {
	t.Parallel()
	s := ready(1)
	s.load([]*Message{stored(5, "a", 9), stored(7, "a", 9)})
	s.load([]*Message{stored(3, "b", 9), stored(6, "a", 9)})
	for _, want := range []int64{3, 5, 6, 7} {
		batch := s.take()
		require.Equal(t, []int64{want}, ids(batch))
		s.finish(batch, one(Done))
	}
}

func TestScheduler_key_is_closed_until_its_failure_is_settled(t *testing.T) {
	t.Parallel()
	s := ready(1)
	s.load([]*Message{stored(1, "a", 9), stored(2, "a", 9)})
	batch := s.take()
	s.finish(batch, one(Retry))
	left := s.load([]*Message{stored(3, "a", 9)})
	require.Len(t, left, 1, "the database does not know yet that it must wait")
	finished := s.takeFinished()
	require.Equal(t, []int64{1, 2}, ids(finished), "what stood behind it is put back")
	require.Equal(t, Postpone, finished[1].outcome.Verdict)
	s.settled(finished)
	require.Empty(t, s.load([]*Message{stored(3, "a", 9)}))
	size, running := s.size()
	require.Equal(t, 1, size)
	require.Zero(t, running)
}

// An earlier message of the key is settled while a later one fails: the key stays closed.
func TestScheduler_settling_one_batch_does_not_open_a_key_that_another_one_closed(t *testing.T) {
	t.Parallel()
	s := ready(1)
	s.load([]*Message{stored(1, "a", 9), stored(2, "a", 9)})
	s.finish(s.take(), one(Done))
	finished := s.takeFinished()
	s.finish(s.take(), one(Retry))
	s.settled(finished)
	require.Len(t, s.load([]*Message{stored(3, "a", 9)}), 1)
}

func TestScheduler_drop_forgets_a_lane(t *testing.T) {
	t.Parallel()
	s := ready(1)
	kept, dropped := stored(1, "a", 0), stored(2, "a", 9)
	dropped.Ref.Lane = 5
	s.load([]*Message{dropped, kept})
	s.drop([]int{5})
	require.Equal(t, []int64{1}, ids(s.take()))
	require.Zero(t, s.inLane(5))
	require.Empty(t, s.keys, "nothing of the key is remembered")
}

func TestScheduler_hands_out_nothing_after_the_lease(t *testing.T) {
	t.Parallel()
	s := ready(1)
	s.extend(time.Now().Add(-time.Second))
	s.load([]*Message{stored(1, "a", 0)})
	taken := make(chan []*entry)
	go func() { taken <- s.take() }()
	select {
	case <-taken:
		require.Fail(t, "handed out")
	case <-time.After(20 * time.Millisecond): // it had the time
	}
	s.extend(time.Now().Add(time.Hour))
	require.Len(t, <-taken, 1)
	s.stop()
	require.Nil(t, s.take())
}
