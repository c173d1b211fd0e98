package drain

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/schedule"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// Messages of a queue are handled, and their removal is under way when the drainer learns that
// their database was replaced. The new one has the messages, and not what their handlers wrote.
// However the removal ends, it is not tried again there: the messages are handled again. Also
// covers F27.
func TestDrainer_G4_a_removal_that_outlives_its_database_is_not_tried_again_in_the_next(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(entries []*schedule.Entry) settledPart{
		"its connection ends": func([]*schedule.Entry) settledPart { return settledPart{err: errNotRemoved} },
		"it is refused":       func([]*schedule.Entry) settledPart { return settledPart{err: hookError{errNotRemoved}} },
		"the rows are locked": func(entries []*schedule.Entry) settledPart {
			locked := map[int64]bool{}
			for _, e := range entries {
				locked[e.Message.Ref.ID] = true
			}
			return settledPart{locked: locked}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCounter(t, testdb.SQLite(t))
			d := c.d
			d.config.Local = true
			begin, underWay := d.settle.start, 0
			d.settle.start = func(func()) { underWay++ }
			d.scheduler.SetWorkers(counted)
			d.scheduler.Load(c.suspects[:2])
			var entries []*schedule.Entry
			for range 2 {
				batch := d.scheduler.Take()
				d.scheduler.Finish(batch, one(spool.Done))
				entries = append(entries, batch...)
			}
			require.NoError(t, d.settle.settleFinished(t.Context()))
			require.Equal(t, 1, underWay)

			d.reader.startOver("the test says so", true)
			d.settle.start = begin
			result := end(entries)
			result.by, result.part = removeDone, entries
			d.settle.ended <- result
			require.Eventually(t, func() bool {
				d.settle.setbacks.lockedUntil = time.Time{}
				_ = d.settle.settleFinished(t.Context())
				inMemory, _ := d.scheduler.Size()
				return inMemory == 0
			}, time.Minute, time.Millisecond, "they are settled")
			require.Equal(t, counted, c.database.Count(t, "SELECT COUNT(*) FROM postbox_messages"), "and stay where they are")
		})
	}
}
