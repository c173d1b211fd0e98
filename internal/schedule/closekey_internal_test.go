package schedule

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// A message that is done gives its key free before it is removed. When its row turns out to be
// locked, the key is closed again, behind what runs by then, and nothing but that message opens it.
func TestScheduler_hold_closes_the_key_again(t *testing.T) {
	t.Parallel()
	s := ready(1)
	s.Load([]*spool.Message{stored(1, "a", 7), stored(2, "a", 7), stored(3, "a", 7)})
	first := s.TryTake()
	s.Finish(first, one(spool.Done))
	s.TakeFinished()
	second := s.TryTake()
	require.Equal(t, []int64{2}, ids(second))
	s.CloseKey(first[0])
	require.False(t, first[0].Simple())
	s.Finish(second, one(spool.Done))
	s.settle()
	require.Nil(t, s.TryTake(), "the third one was put back")
	require.Len(t, s.Load([]*spool.Message{stored(3, "a", 7)}), 1, "the key is closed")
	s.Settled(first)
	require.Empty(t, s.keys)
	require.Empty(t, s.Load([]*spool.Message{stored(3, "a", 7)}))
	require.Equal(t, []int64{3}, ids(s.TryTake()))
}

// The lock goes while the next message of the key runs, perhaps for hours. What is read then goes
// behind that one: if it were left out, it would be read again and again.
func TestScheduler_hold_ends_while_a_later_message_runs(t *testing.T) {
	t.Parallel()
	s := ready(1)
	s.Load([]*spool.Message{stored(1, "a", 7), stored(2, "a", 7)})
	first := s.TryTake()
	s.Finish(first, one(spool.Done))
	s.TakeFinished()
	second := s.TryTake()
	s.CloseKey(first[0])
	s.Settled(first)
	require.Empty(t, s.Load([]*spool.Message{stored(3, "a", 7)}))
	require.Nil(t, s.TryTake(), "the second one runs")
	s.Finish(second, one(spool.Done))
	require.Equal(t, []int64{3}, ids(s.TryTake()))
}

// The same where the next message of the key was offered and does not run.
func TestScheduler_hold_takes_back_what_was_offered(t *testing.T) {
	t.Parallel()
	s := ready(1)
	s.Load([]*spool.Message{stored(1, "a", 7), stored(2, "a", 7)})
	first := s.TryTake()
	s.Finish(first, one(spool.Done))
	s.TakeFinished()
	s.CloseKey(first[0])
	require.Nil(t, s.TryTake())
	s.settle()
	require.Len(t, s.Load([]*spool.Message{stored(2, "a", 7)}), 1)
	s.Settled(first)
	require.Empty(t, s.Load([]*spool.Message{stored(2, "a", 7)}))
	require.Equal(t, []int64{2}, ids(s.TryTake()))
}

// A message that must run alone lets the next one of its kind run when it is held: the lock may
// last.
func TestScheduler_hold_lets_the_next_suspect_run(t *testing.T) {
	t.Parallel()
	s := ready(1)
	s.Load([]*spool.Message{started(1, "a", 7, 1), started(2, "a", 8, 1)})
	first := s.TryTake()
	require.Nil(t, s.TryTake())
	s.Finish(first, one(spool.Retry))
	s.TakeFinished()
	s.CloseKey(first[0])
	require.Equal(t, []int64{2}, ids(s.TryTake()))
	s.Settled(first)
	require.Nil(t, s.TryTake())
}

// Messages of a key may rest for different times. Its key stays closed until the last one of them
// is settled.
func TestScheduler_G3_a_key_stays_closed_while_one_of_its_messages_rests(t *testing.T) {
	t.Parallel()
	s := ready(3)
	s.Load([]*spool.Message{stored(1, "a", 9), stored(2, "a", 9), stored(3, "a", 9)})
	batch := s.Take()
	s.Finish(batch, []spool.Outcome{{Verdict: spool.Again}, {Verdict: spool.Again}, {Verdict: spool.Again}})
	require.Equal(t, batch, s.TakeFinished())
	s.Settled(batch[1:])
	later := []*spool.Message{stored(4, "a", 9)}
	require.Equal(t, later, s.Load(later), "the first one rests")
	s.Settled(batch[:1])
	require.Empty(t, s.Load(later))
	require.Equal(t, []int64{4}, ids(s.Take()))
}

func TestScheduler_hands_out_a_message_that_had_a_setback_by_itself(t *testing.T) {
	t.Parallel()
	for name, gather := range map[string]*Gather{
		"at once": nil, "gathered": {Due: func(stored time.Time) time.Time { return stored }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := New(10, gather)
			s.SetWorkers(1 << 10)
			s.Extend(time.Now().Add(time.Hour))
			var messages []*spool.Message
			for id := range int64(5) {
				m := stored(id+1, "a", 0)
				m.Apart, m.Due = id == 2, time.Now().Add(-time.Second)
				messages = append(messages, m)
			}
			s.Load(messages)
			batches := map[int]int{}
			for handed := 0; handed < len(messages); {
				batch := s.Take()
				handed += len(batch)
				batches[len(batch)]++
				if len(batch) > 1 {
					require.NotContains(t, ids(batch), int64(3))
				}
			}
			require.NotZero(t, batches[1])
		})
	}
}

// What reads have left out of a closed key is read again when it opens, from the first of it on,
// whichever message has kept it closed last.
func TestSettled_G1_returns_the_first_message_that_was_left_out(t *testing.T) {
	t.Parallel()
	s := ready(1)
	s.Load([]*spool.Message{stored(5, "a", 7)})
	s.Finish(s.Take(), []spool.Outcome{{Verdict: spool.Retry}})
	failed := s.TakeFinished()
	require.Len(t, s.Load([]*spool.Message{stored(8, "a", 7), stored(3, "a", 7), stored(9, "a", 7)}), 3)
	require.Len(t, s.Load([]*spool.Message{stored(6, "a", 7)}), 1)
	s.CloseKey(failed[0])
	left := s.Settled(failed)
	require.Len(t, left, 1)
	require.EqualValues(t, 3, left[0].ID)
	require.Empty(t, s.Load([]*spool.Message{stored(3, "a", 7)}))
	require.Empty(t, s.Settled(nil))
}

// A message is done, and a later one of its key has failed, in another queue since the key was open
// in between. All are left over from before their lane was lost, or the database went back. The key
// stays closed until both are settled.
func TestSettled_G3_a_key_stays_closed_whichever_message_is_settled_first(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(s *Scheduler){
		"the database went back": func(s *Scheduler) { s.Outlive() },
		"the lane was lost":      func(s *Scheduler) { s.Drop([]int{0}) },
	} {
		for range 50 { // in both orders
			s := ready(1)
			s.Load([]*spool.Message{stored(1, "a", 7)})
			s.Finish(s.Take(), []spool.Outcome{{Verdict: spool.Done}})
			done := s.TakeFinished()
			s.Load([]*spool.Message{stored(2, "a", 7)})
			s.Finish(s.Take(), []spool.Outcome{{Verdict: spool.Retry}})
			failed := s.TakeFinished()
			lose(s)
			s.Settled(done)
			require.Len(t, s.Load([]*spool.Message{stored(3, "a", 7)}), 1, name)
			require.Nil(t, s.TryTake())
			left := s.Settled(failed)
			require.Len(t, left, 1)
			require.EqualValues(t, 3, left[0].ID)
			require.Empty(t, s.keys)
		}
	}
}
