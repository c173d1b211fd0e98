package drain

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A stop tries each second to store an outcome, and once more shortly before the end of its time,
// whatever that is. A lock that ends in between costs nothing then.
func TestBeforeTry_G12_the_last_try_comes_shortly_before_the_end(t *testing.T) {
	t.Parallel()
	for _, left := range []time.Duration{handBackTime, 1500 * time.Millisecond, 5 * time.Second, 30 * time.Second} {
		for pause := beforeTry(left, time.Minute); pause > 0; pause = beforeTry(left, time.Minute) {
			require.LessOrEqual(t, pause, lockedInterval)
			left -= pause
		}
		require.Equal(t, lastTry, left)
	}
	require.Equal(t, time.Millisecond, beforeTry(time.Minute, time.Millisecond), "leases are renewed in time")
}
