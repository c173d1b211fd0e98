package schedule

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSlowStart_doubles_each_second_until_a_read_finds_fewer(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := SlowStart{Now: func() time.Time { return now }}
	require.Equal(t, 500, s.Allow(500), "without a beginning nothing is limited")
	s.Begin()
	require.Equal(t, 60, s.Allow(60))
	s.Found(60, 60)
	require.Equal(t, 40, s.Allow(500), "what is left of the first second")
	s.Found(40, 40)
	require.Zero(t, s.Allow(500))
	s.Found(0, 0)
	require.Equal(t, now.Add(time.Second), s.Next(now.Add(time.Minute)), "the next second is looked for")
	require.Equal(t, now, s.Next(now))
	for _, rate := range []int{200, 400, 800} {
		now = now.Add(time.Second)
		require.Equal(t, rate, s.Allow(5000))
		s.Found(rate, rate)
		require.Zero(t, s.Allow(5000))
	}
	now = now.Add(time.Second)
	require.Equal(t, 500, s.Allow(500))
	s.Found(500, 499)
	require.Equal(t, 5000, s.Allow(5000), "nothing more is overdue")
	require.Equal(t, now.Add(time.Minute), s.Next(now.Add(time.Minute)))
}

func TestSlowStart_that_begins_again_admits_no_more_in_the_same_second(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := SlowStart{Now: func() time.Time { return now }}
	s.Begin()
	s.Found(100, 100)
	s.Begin()
	require.Zero(t, s.Allow(10))
	now = now.Add(3 * time.Second)
	require.Equal(t, 200, s.Allow(500))
	s.Begin()
	require.Equal(t, 100, s.Allow(500))
}
