package spool

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestHorizon_moves_when_those_who_ran_have_ended(t *testing.T) {
	t.Parallel()
	var h horizon
	now := time.Now()
	require.Zero(t, h.observe(100, 7, 1))
	h.set(105, 0, now) // transactions 100 to 104 may hold ids up to 7
	require.Zero(t, h.observe(104, 9, 1), "104 still runs")
	require.EqualValues(t, 7, h.observe(105, 12, 1), "all of them have ended")
	h.set(120, 0, now)
	require.EqualValues(t, 7, h.observe(110, 15, 1), "of those who ran then, some still do")
	require.EqualValues(t, 12, h.observe(120, 15, 1))
	require.EqualValues(t, 12, h.observe(1, 15, 1), "it never goes back")
}

// What was given before the mark is final as soon as all who ran have ended, also what nobody has read yet.
func TestHorizon_is_ahead_of_what_was_read(t *testing.T) {
	t.Parallel()
	var h horizon
	now := time.Now()
	h.observe(100, 500, 500)
	h.set(105, 50_000, now)
	require.EqualValues(t, 50_000, h.observe(105, 1000, 500))
	require.False(t, h.wantsMark(now.Add(time.Hour)), "what is read is final already")
	h.observe(105, 50_001, 500)
	require.True(t, h.wantsMark(now))
}

func TestHorizon_wants_a_mark_when_there_is_something_new(t *testing.T) {
	t.Parallel()
	var h horizon
	now := time.Now()
	require.False(t, h.wantsMark(now), "nothing was seen")
	h.observe(100, 7, 1)
	require.True(t, h.wantsMark(now))
	h.set(105, 0, now)
	require.False(t, h.wantsMark(now.Add(time.Hour)), "there is one")
	h.observe(105, 7, 1)
	require.False(t, h.wantsMark(now.Add(time.Hour)), "nothing new was seen")
	h.observe(105, 8, 1)
	require.False(t, h.wantsMark(now), "it is too early")
	require.True(t, h.wantsMark(now.Add(markInterval)))
	h.observe(105, 9, markMessages-2)
	require.True(t, h.wantsMark(now), "much was read")
}

func TestHorizon_of_a_database_with_one_writer_and_of_one_without_horizon(t *testing.T) {
	t.Parallel()
	var one, none horizon
	one.observe(1, 5, 1)
	one.set(0, 0, time.Now())
	require.EqualValues(t, 5, one.observe(1, 8, 1))
	none.observe(0, 5, 1)
	none.set(1, 0, time.Now())
	require.Zero(t, none.observe(0, 8, 1))
}
