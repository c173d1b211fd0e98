package dashboard

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin"
)

// No page was open for half an hour.
func TestChart_has_a_gap_where_it_has_no_samples(t *testing.T) {
	t.Parallel()
	target, now := admin.Outbox("outbox"), time.Now()
	c := counted{at: now}
	for ago := 50 * time.Minute; ago >= 0; ago -= time.Minute {
		if ago >= 40*time.Minute || ago <= 10*time.Minute {
			c.kept = append(c.kept, sample{now.Add(-ago), map[admin.Target]int{target: 7}})
		}
	}
	drawn := chartOf(c, target)
	require.Equal(t, []gap{{20, 60}}, drawn.Gaps)
	require.Equal(t, 2, strings.Count(drawn.Line, "M"), drawn.Line)
	require.Equal(t, 2, strings.Count(drawn.Area, "Z"), drawn.Area)
	require.Empty(t, chartOf(c, admin.Outbox("other")).Label)
}
