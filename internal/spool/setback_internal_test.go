package spool

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Messages of a key may rest for different times. Its key stays closed until the last one of them is settled.
func TestScheduler_G3_a_key_stays_closed_while_one_of_its_messages_rests(t *testing.T) {
	t.Parallel()
	s := ready(3)
	s.load([]*Message{stored(1, "a", 9), stored(2, "a", 9), stored(3, "a", 9)})
	batch := s.take()
	s.finish(batch, []Outcome{{Verdict: Again}, {Verdict: Again}, {Verdict: Again}})
	require.Equal(t, batch, s.takeFinished())
	s.settled(batch[1:])
	later := []*Message{stored(4, "a", 9)}
	require.Equal(t, later, s.load(later), "the first one rests")
	s.settled(batch[:1])
	require.Empty(t, s.load(later))
	require.Equal(t, []int64{4}, ids(s.take()))
}

func TestScheduler_hands_out_a_message_that_had_a_setback_by_itself(t *testing.T) {
	t.Parallel()
	for name, gather := range map[string]*Gather{
		"at once": nil, "gathered": {Due: func(stored time.Time) time.Time { return stored }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScheduler(10, gather)
			s.limit(1 << 10)
			s.extend(time.Now().Add(time.Hour))
			var messages []*Message
			for id := range int64(5) {
				m := stored(id+1, "a", 0)
				m.apart, m.due = id == 2, time.Now().Add(-time.Second)
				messages = append(messages, m)
			}
			s.load(messages)
			batches := map[int]int{}
			for handed := 0; handed < len(messages); {
				batch := s.take()
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

func TestSetbacks_pauses_double_up_to_ten_seconds(t *testing.T) {
	t.Parallel()
	var s setbacks
	m := stored(1, "a", 0)
	for n := 1; n < 100; n++ {
		inARow, pause := s.add(m, time.Now())
		require.Equal(t, n, inARow)
		most := setbackMost
		if n < 10 {
			most = setbackPause << (n - 1)
		}
		require.GreaterOrEqual(t, pause, most/2)
		require.Less(t, pause, most)
	}
	for id := range int64(maxSetbacks) {
		s.add(stored(id+2, "a", 0), time.Now())
	}
	require.LessOrEqual(t, len(s.known), maxSetbacks, "the memory is bounded")
}

// Messages that were deleted, or whose lane was lost, are heard of no more. They do not count for ever among those that the log names, and
// one that came while there were enough is named later.
func TestSetbacks_names_others_when_the_named_ones_are_heard_of_no_more(t *testing.T) {
	t.Parallel()
	var s setbacks
	now := time.Now()
	named := func(id int64) bool {
		m := stored(id, "a", 0)
		for range setbacksTold {
			s.add(m, now)
		}
		return s.name(m, now)
	}
	for id := range int64(maxTold) {
		require.True(t, named(id+1))
		require.False(t, named(id+1), "once")
	}
	require.False(t, named(100), "enough are named")
	s.forget(stored(1, "a", 0)) // it was settled
	require.True(t, named(101))

	now = now.Add(setbackRecent)
	require.False(t, named(2), "it still has setbacks")
	now = now.Add(time.Second)
	require.True(t, named(100), "the others have none")
	for id := range int64(maxTold - 2) {
		require.True(t, named(200+id))
	}
	require.False(t, named(300), "enough are named")
	require.False(t, named(3), "it comes back, and was named before")
}
