package spool

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// A read of all lanes together ends where it is full. What it found of the lane where it ended is the beginning of that lane, and of the lanes
// behind that one it knows nothing.
func TestPage_of_lanes_together_is_complete_up_to_where_it_ends(t *testing.T) {
	t.Parallel()
	const before, safe, full = 10, 100, 4
	cursors := []dialect.Cursor{{Lane: 0, After: before}, {Lane: 1, After: before}, {Lane: 2, After: before}, {Lane: 3, After: before}}
	ready := func(lane int, id int64) *Message {
		return &Message{HasKey: true, Ref: dialect.Ref{State: dialect.StateReady, Lane: lane, ID: id}}
	}
	due := func(lane int) *Message {
		return &Message{HasKey: true, Ref: dialect.Ref{State: dialect.StateScheduled, Lane: lane, ID: 40}}
	}
	for name, c := range map[string]struct {
		together int
		hints    [4]int64
		hungry   []int
		left     int // of those that are due
	}{
		"there was room": {full + 1, [4]int64{safe, safe, safe, safe}, nil, 4},
		"it was full":    {full, [4]int64{safe, safe, 30, before}, []int{2, 3}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lanes := newLaneSet()
			found := &page{perLane: map[int]int{}, last: map[int]int64{}}
			for _, cursor := range cursors {
				lanes.held[cursor.Lane] = &lane{number: cursor.Lane, hint: cursor.After}
			}
			for _, m := range []*Message{ready(0, 20), ready(0, 50), ready(2, 25), ready(2, 30), due(0), due(1), due(2), due(3)} {
				found.count(m)
			}
			params := dialect.FetchParams{Cursors: cursors, Together: c.together}
			found.leaveEarly(params)
			d := &Drainer{lanes: lanes}
			d.remember(params, found, safe)
			require.Len(t, found.messages, full+c.left)
			require.Equal(t, c.hungry, lanes.hungry())
			for number, hint := range c.hints {
				require.Equal(t, hint, lanes.held[number].hint, "lane %d", number)
			}
		})
	}
}
