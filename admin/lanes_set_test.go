package admin_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

func TestSetLanes_refuses_what_has_no_lanes_and_numbers_that_are_none(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	b.append(draft("one", "orders", "key"))
	for _, c := range []struct {
		target admin.Target
		lanes  int
		is     error
		says   string
	}{
		{b.target, 0, admin.ErrInvalid, "lanes: 0 is not between 1 and 256"},
		{b.target, -1, admin.ErrInvalid, "lanes: -1 is not between 1 and 256"},
		{b.target, 257, admin.ErrInvalid, "lanes: 257 is not between 1 and 256"},
		{admin.Inbox("billing"), 4, admin.ErrInvalid, "an inbox has a history, and no pending messages: it has no lanes"},
		{admin.Outbox("elsewhere"), 4, admin.ErrNotFound, "there are outbox"},
		{admin.Queue("elsewhere"), 4, admin.ErrNotFound, "there are outbox"},
		{admin.Target{}, 4, admin.ErrNotFound, ""},
	} {
		_, err := b.admin.SetLanes(t.Context(), c.target, c.lanes, nil)
		require.ErrorIs(t, err, c.is, "%v %d", c.target, c.lanes)
		require.ErrorContains(t, err, c.says)
	}
	require.Equal(t, lanes, b.database.Count(t, "SELECT lanes FROM postbox_spools"))
	require.Zero(t, b.database.Count(t, "SELECT COUNT(*) FROM postbox_audit"))
}

// What operators did before a change holds after it: a paused key stays paused, and a dead letter can be requeued. The operator knows the outbox from
// before the change.
func TestSetLanes_keeps_what_operators_did_before(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.append(draft("dead", "orders", "key"), draft("requeued before", "orders", "another"))
		b.bury()
		require.NoError(t, b.admin.Requeue(t.Context(), b.list(admin.Filter{})[0].ID))
		b.append(draft("paused", "orders", "paused key"), draft("free", "orders", "free key"))
		require.NoError(t, b.admin.PauseKey(t.Context(), b.target, "paused key"))

		begun, waits := time.Now(), ""
		moved, err := b.admin.SetLanes(t.Context(), b.target, 3, func(p admin.Progress) { waits += p.Waits })
		require.NoError(t, err)
		require.Equal(t, 3, moved)
		require.GreaterOrEqual(t, time.Since(begun), spool.LayoutAge, "until no process uses a layout that was lost")
		require.Contains(t, waits, "the change begins in 10s")
		require.NoError(t, b.admin.Requeue(t.Context(), b.only(admin.Filter{}).ID))
		require.Equal(t, 4, database.Count(t, "SELECT COUNT(*) FROM postbox_messages m JOIN postbox_spools s ON s.id = m.spool WHERE m.lane >= s.first_lane AND m.lane < s.first_lane + 3"))

		h, _ := b.drain(func(*spool.Message) error { return nil })
		b.eventually(func() bool { return b.pending() == 1 }, "the others are handled")
		require.Equal(t, map[string]int{"dead": 1, "requeued before": 1, "free": 1}, h.counts())
		stuck, err := b.admin.StuckKeys(t.Context(), b.target, 0)
		require.NoError(t, err)
		require.Len(t, stuck, 1)
		require.Equal(t, "paused key", stuck[0].Key)
		require.NoError(t, b.admin.ResumeKey(t.Context(), b.target, "paused key"))
		b.eventually(func() bool { return b.pending() == 0 }, "it goes on")
	})
}

func TestQueues_say_that_messages_are_in_old_lanes(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.append(draft("one", "orders", "key"))
		moving := func() bool {
			queues, err := b.admin.Queues(t.Context())
			require.NoError(t, err)
			require.Len(t, queues, 1)
			return queues[0].MovingLanes
		}
		require.False(t, moving())
		database.Exec(t, "UPDATE postbox_spools SET first_lane = 256")
		require.True(t, moving())
		_, err := b.admin.SetLanes(t.Context(), b.target, lanes, nil) // the number that is stored: it only moves
		require.NoError(t, err)
		require.False(t, moving())
		database.Exec(t, "UPDATE postbox_messages SET lane = 300")
		require.True(t, moving())
		b.append(draft("two", "orders", "key"))
		database.Exec(t, "UPDATE postbox_spools SET first_lane = 256, lanes = 100")
		require.False(t, moving())
	})
}
