package drain

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// without is a handler with a topic in an outage.
type without struct{ Handler }

func (without) Excluded() []string { return []string{"broken"} }

// However many messages a read leaves out, it passes over a stride of them, and the next one goes
// on there.
func TestStride_G8_reads_pass_over_what_they_leave_out_in_steps(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		const excluded, span = 200, 20
		own := newOutbox(t, database)
		d, end := newStepped(database.DB, own, 10)
		t.Cleanup(end)
		d.reader.handler = without{}
		var all []spool.Draft
		for i := range excluded {
			all = append(all, spool.Draft{Topic: "broken", MessageID: fmt.Sprint(i), Key: fmt.Sprint(i % 7)})
		}
		require.NoError(t, own.Append(t.Context(), database.DB, spool.Run, append(all, spool.Draft{Topic: "works", MessageID: "last"})))
		require.NoError(t, d.tryOpen(t.Context()))
		require.NoError(t, d.upkeep(t.Context()))
		require.NoError(t, d.applySettings(t.Context()))
		if database.Dialect != postbox.MySQL || database.IsMariaDB(t) { // MySQL has no watermark
			require.NoError(t, d.reader.markFirst(t.Context()))
			require.Eventually(t, func() bool { // until it is final, which other tests delay, a read has no bound
				d.reader.findWriters(t.Context())
				require.NoError(t, d.reader.readOnlyMeta(t.Context(), false))
				return d.reader.watermark.safe > 0
			}, time.Minute, testdb.PollPause)
		}
		steps, cursors := 0, map[int]int64{}
		require.Eventually(t, func() bool {
			d.reader.stride.span = span
			d.pace.at = time.Time{}
			require.NoError(t, d.reader.poll(t.Context()))
			for number, l := range d.lanes.held {
				if l.cursor < d.reader.watermark.safe { // the last step ends at the end
					require.LessOrEqual(t, l.cursor, cursors[number]+span)
				}
				cursors[number] = l.cursor
			}
			steps++
			return len(d.scheduler.Snapshot().Messages) == 1
		}, time.Minute, testdb.PollPause)
		require.Equal(t, "last", d.scheduler.Snapshot().Messages[0].MessageID)
		if d.reader.watermark.safe > 0 { // without a watermark, each read begins at the first message
			require.Greater(t, steps, excluded/span/2)
		}
	})
}

func TestStride_grows_while_reads_are_brief_and_shrinks_after_one_that_failed(t *testing.T) {
	t.Parallel()
	s := stride{span: firstStride}
	s.took(time.Millisecond, false)
	require.EqualValues(t, 2*firstStride, s.span)
	s.took(time.Millisecond, true)
	require.EqualValues(t, 2*firstStride/8, s.span)
	for range 100 {
		s.took(time.Second, true)
	}
	require.EqualValues(t, leastStride, s.span)
	for range 100 {
		s.took(0, false)
	}
	require.EqualValues(t, largestStride, s.span)
}

// A distant database, or one that compiles each statement, takes long with any stride: with short
// ones a backlog would take hours.
func TestStride_G8_reads_that_are_slow_with_any_stride_do_not_shorten_it(t *testing.T) {
	t.Parallel()
	s := stride{span: firstStride}
	for range 100 {
		s.took(time.Second, false)
	}
	require.EqualValues(t, firstStride, s.span)
}
