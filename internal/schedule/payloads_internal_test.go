package schedule

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// bulky is a message that is loaded by itself, of so many bytes.
func bulky(id int64, topic string, key int64, size int) *spool.Message { //nolint:unparam // a test says which topic it means
	m := stored(id, topic, key)
	m.Size = size
	return m
}

func TestRoom_large_messages_go_in_their_order_and_small_ones_pass_by(t *testing.T) {
	t.Parallel()
	s := ready(1)
	s.Bound(10)
	s.Load([]*spool.Message{bulky(1, "a", 0, 6), bulky(2, "a", 0, 9), bulky(3, "a", 0, 4), bulky(4, "a", 0, 1), stored(5, "a", 0)})
	first := s.Take()
	require.Equal(t, []int64{1}, ids(first))
	require.Equal(t, []int64{5}, ids(s.Take()), "the small one has come with its page")
	require.Nil(t, s.tryTake(), "those of 4 and of 1 could keep the one of 9 from going for ever")
	s.Finish(first, one(spool.Done))
	second := s.Take()
	require.Equal(t, []int64{2}, ids(second))
	require.Nil(t, s.tryTake())
	s.Finish(second, one(spool.Done))
	require.Equal(t, []int64{3}, ids(s.Take()))
	require.Equal(t, []int64{4}, ids(s.Take()))
}

func TestRoom_batch_has_fewer_messages_rather_than_more_bytes(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]int64{"without a key": 0, "of one key": 9} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := ready(100)
			s.Bound(10)
			s.Load([]*spool.Message{bulky(1, "a", key, 4), bulky(2, "a", key, 4), bulky(3, "a", key, 4), bulky(4, "a", key, 30), bulky(5, "a", key, 10)})
			for _, want := range [][]int64{{1, 2}, {3}, {4}, {5}} {
				batch := s.Take()
				require.Equal(t, want, ids(batch))
				s.Finish(batch, make([]spool.Outcome, len(batch)))
			}
		})
	}
}

func TestRoom_gathered_batch_has_fewer_messages_rather_than_more_bytes(t *testing.T) {
	t.Parallel()
	s := gathering(Gather{})
	s.Bound(10)
	large := func(id int64, size int) *spool.Message {
		m := at(id, 0, 5)
		m.Size = size
		return m
	}
	s.Load([]*spool.Message{large(1, 5), large(2, 5), large(3, 5), large(4, 20)})
	first := s.batchAt(5)
	require.Equal(t, []int64{1, 2}, ids(first))
	require.Nil(t, s.batchAt(5), "there is no room")
	s.done(first)
	third := s.batchAt(5)
	require.Equal(t, []int64{3}, ids(third))
	s.done(third)
	require.Equal(t, []int64{4}, ids(s.batchAt(5)))
}

// A message that waits for room leaves with its lane, and one that becomes the head of its key
// takes its place.
func TestRoom_a_lost_lane_and_a_late_committer_change_which_message_waits(t *testing.T) {
	t.Parallel()
	s := ready(1)
	s.Bound(10)
	lost := bulky(2, "a", 7, 9)
	lost.Ref.Lane = 3
	s.Load([]*spool.Message{bulky(1, "a", 0, 6), lost, bulky(5, "a", 8, 9)})
	first := s.Take()
	require.Equal(t, []int64{1}, ids(first))
	require.Nil(t, s.tryTake())
	s.Drop([]int{3})
	s.Load([]*spool.Message{stored(4, "b", 8)})
	require.Equal(t, []int64{4}, ids(s.tryTake()))
	require.Nil(t, s.keys[orderOf{key: "7"}])
}

// A suspect that was started before waits for room like others, and runs beside no other such
// message.
func TestRoom_suspect_messages_wait_for_room_too(t *testing.T) {
	t.Parallel()
	s := ready(1)
	s.Bound(10)
	suspect := func(id int64) *spool.Message {
		m := started(id, "a", 0, 1)
		m.Size = 4
		return m
	}
	s.Load([]*spool.Message{bulky(1, "a", 0, 8), suspect(2), suspect(3)})
	first := s.Take()
	require.Equal(t, []int64{1}, ids(first))
	require.Nil(t, s.tryTake())
	s.Finish(first, one(spool.Done))
	second := s.Take()
	require.Equal(t, []int64{2}, ids(second))
	require.Nil(t, s.tryTake(), "there is room, and one such message runs")
	s.Finish(second, one(spool.Done))
	s.settle()
	require.Equal(t, []int64{3}, ids(s.tryTake()))
}

// tryTake is take, but for the wait.
func (s *Scheduler) tryTake() []*Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.something() {
		if batch := s.pick(); len(batch) > 0 {
			return batch
		}
	}
	return nil
}
