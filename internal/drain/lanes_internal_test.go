package drain

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

func held(exposed int) *laneSet {
	set := newLaneSet()
	set.held[1] = &lane{number: 1, token: 3, suspect: exposed > 0, exposedToRead: exposed}
	return set
}

func ofLane(id, token int64) *spool.Message {
	return &spool.Message{Ref: dialect.Ref{ID: id, Lane: 1, Token: token}}
}

func TestLaneSet_messages_that_the_previous_holder_may_have_started_are_exposed(t *testing.T) {
	t.Parallel()
	set := held(2)
	first, second, third := ofLane(1, 3), ofLane(2, 3), ofLane(3, 3)
	for _, m := range []*spool.Message{first, second, third} {
		set.load(m)
	}
	require.True(t, first.Exposed)
	require.True(t, second.Exposed)
	require.False(t, third.Exposed, "a drainer has no more messages in memory")
	set.unload(third)
	set.unload(second) // left where it is: it is a suspect when it is read again
	require.Equal(t, 1, set.held[1].exposedToRead)
	require.Equal(t, 1, set.held[1].exposedInMemory)
	again := ofLane(2, 3)
	set.load(again)
	require.True(t, again.Exposed)
	set.settled(first)
	set.settled(again)
	require.Zero(t, set.held[1].exposedInMemory)
}

func TestLaneSet_ignores_a_message_with_an_earlier_token(t *testing.T) {
	t.Parallel()
	set := held(2)
	m := ofLane(1, 2)
	set.load(m)
	require.False(t, m.Exposed)
	m.Exposed = true
	set.settled(m)
	set.unload(m)
	require.Equal(t, 2, set.held[1].exposedToRead)
	require.Zero(t, set.held[1].exposedInMemory)
}
