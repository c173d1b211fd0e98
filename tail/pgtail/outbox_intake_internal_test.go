package pgtail

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// After a start the server sends what was stored and not confirmed. A mark follows, and the keeper looks before its end was passed.
func TestIntake_G2_a_mark_moves_no_position_back(t *testing.T) {
	t.Parallel()
	const confirmed, stored, mark = 50, 100, 160
	in := newIntake(dialect.LogPosition{Position: stored})
	in.passedBy(confirmed)
	in.mark(mark)
	passed, due := in.due(stored)
	require.False(t, due, "at %d", passed)
	in.passedBy(mark)
	passed, due = in.due(stored)
	require.True(t, due)
	require.EqualValues(t, mark, passed)
}
