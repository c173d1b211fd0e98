package drain

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/schedule"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// What failed together with a message whose row is locked, and stands behind it, is not settled
// before it.
func TestAddBehind_adds_messages_behind_a_locked_one_of_their_key(t *testing.T) {
	t.Parallel()
	var failed []*schedule.Entry
	for _, m := range []*spool.Message{stored(1, 7), stored(2, 7), stored(3, 8), stored(4, 7), stored(5, 9), stored(6, 9)} {
		failed = append(failed, &schedule.Entry{Message: m})
	}
	free := &spool.Message{Ref: dialect.Ref{ID: 7}}
	failed = append(failed, &schedule.Entry{Message: free})
	locked := map[int64]bool{2: true, 5: true}
	addBehind(locked, failed)
	require.Equal(t, map[int64]bool{2: true, 4: true, 5: true, 6: true}, locked)
}

// A removal finds out that a row is locked although the server would wait for longer than the whole
// statement may take.
func TestRemoval_gives_up_waiting_for_a_lock(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		c := newCounter(t, database)
		require.NoError(t, c.d.learnServer(t.Context()))
		tx, err := database.DB.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		var id int64
		locked := c.suspects[7].Ref.ID
		require.NoError(t, tx.QueryRowContext(t.Context(), database.Bind("SELECT id FROM postbox_messages WHERE id = ? FOR UPDATE"), locked).Scan(&id))
		refs := make([]dialect.Ref, counted)
		for i, m := range c.suspects {
			refs[i] = m.Ref
		}
		for _, keep := range []bool{false, true} {
			if c.d.spool.Statements.Impatient != "" && !c.d.settle.lockFirst { // the server gives up by itself, and leaves nothing locked
				_, err := c.d.settle.removeAtOnce(t.Context(), refs, manner{keep: keep})
				require.Equal(t, dialect.Conflict, c.d.spool.Statements.Kind.Classify(err))
			}
			var left leftover
			rest, missing := refs, false
			require.Eventually(t, func() bool { // the client may give up first, and the server keep all its locks for a moment, or until some of them were tried
				left, err = c.d.settle.remove(t.Context(), rest, manner{keep: keep, lock: c.d.settle.lockFirst})
				missing = missing || left.missing
				rest = slices.DeleteFunc(slices.Clone(rest), func(r dialect.Ref) bool { return !left.locked[r.ID] })
				return err != nil || len(rest) == 1
			}, time.Minute, testdb.PollPause)
			require.NoError(t, err)
			require.Equal(t, keep, missing, "the first time all others are there, and are removed")
			require.Equal(t, map[int64]bool{locked: true}, left.locked)
		}
		require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_messages"))
	})
}

// Another process has joined, and the leases are renewed while a held message is tried again. Half
// of the lanes are handed back, but not the lane of that message: no process would read it before
// the lock is gone.
func TestHold_G3_a_message_that_is_tried_again_keeps_its_lane(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		const last = dialect.Lanes - 1 // the lane that would go first
		own := newOutbox(t, database)
		for _, key := range append(keysOf(0, counted/2), keysOf(last, counted/2)...) {
			require.NoError(t, own.Append(t.Context(), database.DB, spool.Run, []spool.Draft{{Topic: "orders", MessageID: key, Key: key}}))
		}
		d, end := newStepped(database.DB, own, counted*dialect.Lanes)
		t.Cleanup(end)
		require.NoError(t, d.tryOpen(t.Context()))
		require.NoError(t, d.upkeep(t.Context()))
		found, err := d.reader.fetch(t.Context(), d.reader.params(d.lanes.numbers(), counted*dialect.Lanes))
		require.NoError(t, err)
		inLast := slices.IndexFunc(found.messages, func(m *spool.Message) bool { return m.Ref.Lane == last })
		require.GreaterOrEqual(t, inLast, 0)
		m := found.messages[inLast]
		tx, err := database.DB.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		var id int64
		require.NoError(t, tx.QueryRowContext(t.Context(), database.Bind("SELECT id FROM postbox_messages WHERE id = ? FOR UPDATE"), m.Ref.ID).Scan(&id))
		d.scheduler.SetWorkers(1)
		d.scheduler.Load([]*spool.Message{m})
		d.scheduler.Finish(d.scheduler.Take(), one(spool.Done))
		d.settle.awaitLock(d.scheduler.TakeFinished()[0])

		d.lease.members, d.settle.unsettled, d.settle.setbacks.resting = 2, d.settle.setbacks.resting, nil
		tried := d.beginUnsettled(t.Context())
		require.NoError(t, d.upkeep(t.Context()))
		require.True(t, d.lanes.held[last].leaving, "it is to be handed back")
		require.NoError(t, tried())
		require.Len(t, d.settle.setbacks.resting, 1, "the row is still locked")
		require.False(t, d.lanes.held[last].leaving, "its lane stays")
		d.lease.giveAway()
		require.True(t, d.lanes.held[last-1].leaving, "the one before it goes")
		require.False(t, d.lanes.held[last].leaving)
	})
}

func TestLaneSet_surplus_keeps_lanes_with_held_messages(t *testing.T) {
	t.Parallel()
	set := newLaneSet()
	for number := range 4 {
		set.held[number] = &lane{number: number}
	}
	require.Empty(t, set.beyondShare(4, nil))
	require.Equal(t, []int{2, 3}, set.beyondShare(2, nil))
	require.Equal(t, []int{1, 2}, set.beyondShare(2, map[int]bool{3: true}))
	require.Equal(t, []int{1}, set.beyondShare(0, map[int]bool{0: true, 2: true, 3: true}))
	set.held[1].leaving, set.held[1].cursor = true, 9
	set.held[1].stay(5)
	require.Equal(t, &lane{number: 1}, set.held[1])
}
