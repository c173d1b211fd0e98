package schedule

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// All workers hang, and then all that have replaced them, on a topic that was idle before. Others replace these, too, but not at once.
func TestScheduler_more_workers_are_replaced_when_all_hang(t *testing.T) {
	t.Parallel()
	const most = 2
	s := ready(1)
	s.Limit(most)
	var list []*spool.Message
	for id := range int64(4 * most) {
		list = append(list, stored(id+1, "a", 0))
	}
	s.Load(list)
	hang := func() (batches [][]*Entry) {
		for batch := s.TryTake(); batch != nil; batch = s.TryTake() {
			batches = append(batches, batch)
		}
		return batches
	}
	replace := func() int { return s.ReplaceStuck(time.Now().Add(time.Hour)) }

	all := hang()
	require.Len(t, all, most)
	may, added := s.MayLose(len(all), true)
	require.True(t, may)
	require.False(t, added, "each of them has a worker in its place")
	require.Equal(t, most, replace())

	all = append(all, hang()...)
	require.Len(t, all, 2*most)
	may, _ = s.MayLose(len(all), false)
	require.False(t, may)
	require.Zero(t, replace())
	require.Empty(t, hang())
	may, added = s.MayLose(len(all), true)
	require.True(t, may)
	require.True(t, added)
	require.Equal(t, most, replace())
	all = append(all, hang()...)
	require.Len(t, all, 3*most)

	for _, batch := range all {
		s.Finish(batch, one(spool.Done))
	}
	may, _ = s.MayLose(most+1, false)
	require.False(t, may, "none is lost any more")
}
