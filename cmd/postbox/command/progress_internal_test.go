package command

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// far reports 50, 100, 150 … of 500 things, with a pause before each report.
func far(pause time.Duration, terminal bool) string {
	var out strings.Builder
	now := written
	h := &howFar{w: &out, terminal: terminal, now: func() time.Time { return now }}
	for done := 50; done <= 500; done += 50 {
		now = now.Add(pause)
		h.say(done, "%d so far.", done)
	}
	h.end()
	h.end()
	return out.String()
}

var written = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestHowFar_prints_a_line_a_second_at_most(t *testing.T) {
	t.Parallel()
	require.Equal(t, "100 so far.\n250 so far.\n400 so far.\n", far(400*time.Millisecond, false))
	require.Equal(t, "100 so far.\n", far(time.Millisecond, false), "a fast one says it once")
}

func TestHowFar_writes_the_line_of_a_terminal_again(t *testing.T) {
	t.Parallel()
	require.Equal(t, "\r\x1b[K100 so far.\r\x1b[K250 so far.\r\x1b[K400 so far.\r\x1b[K", far(40*time.Millisecond, true))
}
