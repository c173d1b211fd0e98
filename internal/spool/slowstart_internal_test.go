package spool

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSlowStart_doubles_each_second_until_a_read_finds_fewer(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := slowStart{now: func() time.Time { return now }}
	require.Equal(t, 500, s.allow(500), "without a beginning nothing is limited")
	s.begin()
	require.Equal(t, 60, s.allow(60))
	s.found(60, 60)
	require.Equal(t, 40, s.allow(500), "what is left of the first second")
	s.found(40, 40)
	require.Zero(t, s.allow(500))
	s.found(0, 0)
	require.Equal(t, now.Add(time.Second), s.next(now.Add(time.Minute)), "the next second is looked for")
	require.Equal(t, now, s.next(now))
	for _, rate := range []int{200, 400, 800} {
		now = now.Add(time.Second)
		require.Equal(t, rate, s.allow(5000))
		s.found(rate, rate)
		require.Zero(t, s.allow(5000))
	}
	now = now.Add(time.Second)
	require.Equal(t, 500, s.allow(500))
	s.found(500, 499)
	require.Equal(t, 5000, s.allow(5000), "nothing more is overdue")
	require.Equal(t, now.Add(time.Minute), s.next(now.Add(time.Minute)))
}

func TestSlowStart_that_begins_again_admits_no_more_in_the_same_second(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := slowStart{now: func() time.Time { return now }}
	s.begin()
	s.found(100, 100)
	s.begin()
	require.Zero(t, s.allow(10))
	now = now.Add(3 * time.Second)
	require.Equal(t, 200, s.allow(500))
	s.begin()
	require.Equal(t, 100, s.allow(500))
}
