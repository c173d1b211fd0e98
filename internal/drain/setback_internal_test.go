package drain

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSetbacks_pauses_double_up_to_ten_seconds(t *testing.T) {
	t.Parallel()
	var s setbacks
	m := stored(1, 0)
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
		s.add(stored(id+2, 0), time.Now())
	}
	require.LessOrEqual(t, len(s.known), maxSetbacks, "the memory is bounded")
}

// Messages that were deleted, or whose lane was lost, are heard of no more. They do not count for
// ever among those that the log names, and one that came while there were enough is named later.
func TestSetbacks_names_other_messages_when_the_named_ones_are_gone(t *testing.T) {
	t.Parallel()
	var s setbacks
	now := time.Now()
	named := func(id int64) bool {
		m := stored(id, 0)
		for range setbacksUntilLogged {
			s.add(m, now)
		}
		return s.name(m, now)
	}
	for id := range int64(maxNamed) {
		require.True(t, named(id+1))
		require.False(t, named(id+1), "once")
	}
	require.False(t, named(100), "enough are named")
	s.forget(stored(1, 0)) // it was settled
	require.True(t, named(101))

	now = now.Add(setbackRecent)
	require.False(t, named(2), "it still has setbacks")
	now = now.Add(time.Second)
	require.True(t, named(100), "the others have none")
	for id := range int64(maxNamed - 2) {
		require.True(t, named(200+id))
	}
	require.False(t, named(300), "enough are named")
	require.False(t, named(3), "it comes back, and was named before")
}
