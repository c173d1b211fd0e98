package schedule

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// gathering is a scheduler that gathers batches of up to four.
func gathering(gather Gather) *Scheduler {
	s := New(4, &gather)
	s.SetWorkers(1 << 10)
	s.Extend(time.Now().Add(time.Hour))
	return s
}

var noon = time.Now()

// at is a message that must be handed out so many minutes after noon.
func at(id, key int64, minutes int) *spool.Message {
	m := stored(id, "a", key)
	m.Due = noon.Add(time.Duration(minutes) * time.Minute)
	return m
}

// batchAt returns the batch that is complete so many minutes after noon, nil if none. All that is
// due then has been read.
func (s *Scheduler) batchAt(minutes int) []*Entry {
	if s.gather.OnlyDue {
		s.LoadRead(noon.Add(time.Duration(minutes)*time.Minute), true, nil)
	}
	return s.completeAt(noon.Add(time.Duration(minutes) * time.Minute))
}

// next returns the batch that is complete now, nil if none.
func (s *Scheduler) next() []*Entry { return s.completeAt(time.Now()) }

func (s *Scheduler) completeAt(now time.Time) []*Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.topics.turns) == 0 {
		return nil
	}
	return s.gathered(now)
}

func (s *Scheduler) done(batch []*Entry) {
	outcomes := make([]spool.Outcome, len(batch))
	s.Finish(batch, outcomes)
	s.settle()
}

func TestGather_full_batch_needs_no_time(t *testing.T) {
	t.Parallel()
	s := gathering(Gather{})
	never := func(id, key int64) *spool.Message { return stored(id, "a", key) }
	s.Load([]*spool.Message{never(7, 1), never(2, 0), never(9, 1)})
	require.Nil(t, s.batchAt(1e6), "three wait for a fourth for ever")
	s.Load([]*spool.Message{never(3, 2), never(1, 0), never(8, 2)})
	batch := s.batchAt(0)
	require.Equal(t, []int64{1, 2, 3, 7}, ids(batch), "the oldest ones, of whatever key")
	require.Nil(t, s.batchAt(0), "those of keys that run wait too")
	s.Load([]*spool.Message{never(10, 3), never(11, 3), never(12, 3)})
	require.Nil(t, s.batchAt(0))
	s.done(batch)
	require.Equal(t, []int64{8, 9, 10, 11}, ids(s.batchAt(0)))
}

func TestGather_message_that_is_due_takes_others_along(t *testing.T) {
	t.Parallel()
	s := gathering(Gather{})
	s.Load([]*spool.Message{at(1, 0, 5), at(2, 0, 3), at(3, 0, 8)})
	require.Nil(t, s.batchAt(2))
	require.Equal(t, []int64{1, 2, 3}, ids(s.batchAt(3)))
	require.Nil(t, s.batchAt(9), "nothing is left")
}

func TestGather_a_period_takes_only_messages_that_were_stored_in_it(t *testing.T) {
	t.Parallel()
	s := gathering(Gather{OnlyDue: true})
	s.Load([]*spool.Message{at(1, 1, 5), at(2, 1, 10), at(3, 0, 5), at(4, 0, 10), at(5, 0, 10), at(6, 0, 10), at(7, 0, 10)})
	require.Nil(t, s.batchAt(4), "a full batch is not enough")
	first := s.batchAt(5)
	require.Equal(t, []int64{1, 3}, ids(first))
	require.Nil(t, s.batchAt(9))
	s.done(first)
	require.Equal(t, []int64{2, 4, 5, 6}, ids(s.batchAt(10)), "in batches of up to four")
	require.Equal(t, []int64{7}, ids(s.batchAt(10)))
}

// What is due stands behind one of its key that is not: the order of a key goes before the period.
func TestGather_period_keeps_the_order_of_a_key(t *testing.T) {
	t.Parallel()
	s := gathering(Gather{OnlyDue: true})
	s.Load([]*spool.Message{at(1, 1, 10), at(2, 1, 5), at(3, 2, 5)})
	require.Equal(t, []int64{3}, ids(s.batchAt(5)))
	require.Equal(t, []int64{1, 2}, ids(s.batchAt(10)))
}

func TestGather_per_key(t *testing.T) {
	t.Parallel()
	s := gathering(Gather{PerKey: true})
	s.Load([]*spool.Message{at(1, 1, 9), at(2, 2, 5), at(3, 1, 9), at(4, 2, 9), at(5, 1, 9), at(6, 0, 5), at(7, 0, 9), at(8, 1, 9), at(9, 1, 9)})
	require.Equal(t, []int64{1, 3, 5, 8}, ids(s.batchAt(0)), "one key has a full batch")
	require.Nil(t, s.batchAt(0))
	require.Equal(t, []int64{2, 4}, ids(s.batchAt(5)), "one has a message that is due")
	require.Equal(t, []int64{6}, ids(s.batchAt(5)), "a message without a key is a batch by itself")
	require.Nil(t, s.batchAt(5))
	require.Equal(t, []int64{7}, ids(s.batchAt(9)), "the first key still runs")
}

func TestGather_a_suspect_runs_outside_of_batches(t *testing.T) {
	t.Parallel()
	for _, perKey := range []bool{false, true} {
		s := gathering(Gather{PerKey: perKey})
		s.Load([]*spool.Message{started(1, "a", 1, 1), at(2, 1, 5), at(3, 2, 5), started(4, "a", 2, 1), at(5, 2, 5), started(6, "a", 0, 1)})
		suspect := s.batchAt(5)
		require.Equal(t, []int64{1}, ids(suspect), "at once, and alone")
		beside := s.batchAt(5)
		require.Equal(t, []int64{3}, ids(beside), "others up to a suspect")
		require.Nil(t, s.batchAt(5), "which waits")
		s.done(beside)
		require.Nil(t, s.batchAt(5))
		s.done(suspect)
		second := s.batchAt(5)
		require.Len(t, second, 1)
		require.Contains(t, []int64{4, 6}, ids(second)[0])
	}
}

func TestGather_lost_lane_leaves_the_batch(t *testing.T) {
	t.Parallel()
	s := gathering(Gather{})
	lost := at(1, 1, 5)
	lost.Ref.Lane = 3
	s.Load([]*spool.Message{lost, at(2, 0, 9)})
	s.Drop([]int{3})
	require.Nil(t, s.batchAt(5), "the other one is not due")
	require.Equal(t, []int64{2}, ids(s.batchAt(9)))
	require.Empty(t, s.keys)
}

// Nobody calls, and no message comes: the time alone completes a batch, also after the lease was
// away.
func TestGather_batch_is_handed_out_when_it_is_due(t *testing.T) {
	t.Parallel()
	s := gathering(Gather{})
	first, second := stored(1, "a", 0), stored(2, "a", 0)
	begun := time.Now()
	first.Due, second.Due = begun.Add(time.Hour), begun.Add(30*time.Millisecond)
	s.Load([]*spool.Message{first, second})
	require.Len(t, s.Take(), 2)
	require.GreaterOrEqual(t, time.Since(begun), 30*time.Millisecond)
	s.Stop()
}

// Due times come from the database's clock. This process counts from the last read, whatever its
// own clock says.
func TestGather_G11_clock_of_the_database(t *testing.T) {
	t.Parallel()
	for _, skew := range []time.Duration{0, -5 * time.Hour, 48 * time.Hour} {
		s := gathering(Gather{})
		now := time.Now().Add(skew) // by the database's clock
		due, begun := stored(1, "a", 0), time.Now()
		due.Due = now.Add(50 * time.Millisecond)
		s.LoadRead(now, true, []*spool.Message{due})
		require.Len(t, s.Take(), 1)
		require.GreaterOrEqual(t, time.Since(begun), 50*time.Millisecond)
		s.Stop()
	}
}

// What is due may be on pages that have not been read yet: only a full batch of which more is left
// goes before.
func TestGather_a_period_waits_until_all_of_it_has_been_read(t *testing.T) {
	t.Parallel()
	s := gathering(Gather{OnlyDue: true})
	s.LoadRead(noon.Add(5*time.Minute), false, []*spool.Message{at(1, 0, 5), at(2, 0, 5), at(3, 0, 5), at(4, 0, 5)})
	require.Nil(t, s.next(), "it is not known whether a full batch is the last one")
	s.LoadRead(noon.Add(5*time.Minute), false, []*spool.Message{at(5, 0, 5)})
	first := s.next()
	require.Equal(t, []int64{1, 2, 3, 4}, ids(first))
	require.False(t, first[0].Message.Last)
	require.Nil(t, s.next())
	s.LoadRead(noon.Add(5*time.Minute), true, []*spool.Message{at(6, 0, 5)})
	last := s.next()
	require.Equal(t, []int64{5, 6}, ids(last))
	require.True(t, last[0].Message.Last && last[1].Message.Last)
}

// Messages behind running ones of their keys come into the same batch as the others.
func TestGather_a_period_waits_for_keys_that_run(t *testing.T) {
	t.Parallel()
	s := gathering(Gather{OnlyDue: true})
	s.LoadRead(noon.Add(5*time.Minute), true, []*spool.Message{at(1, 1, 5), at(2, 2, 5), at(3, 3, 5), at(4, 4, 5), at(5, 1, 5), at(6, 0, 5)})
	first := s.next()
	require.Equal(t, []int64{1, 2, 3, 4}, ids(first))
	require.Nil(t, s.next(), "5 waits for 1, and 6 for 5")
	s.done(first)
	last := s.next()
	require.Equal(t, []int64{5, 6}, ids(last))
	require.True(t, last[0].Message.Last)
}

// Of keys there may be more than the memory holds.
func TestGather_a_full_memory_completes_batches_of_keys(t *testing.T) {
	t.Parallel()
	s := gathering(Gather{OnlyDue: true, PerKey: true})
	s.LoadRead(noon.Add(5*time.Minute), false, []*spool.Message{at(1, 1, 5), at(2, 1, 5), at(3, 2, 5)})
	require.Nil(t, s.next())
	s.Full(true)
	require.Equal(t, []int64{1, 2}, ids(s.next()))
}
