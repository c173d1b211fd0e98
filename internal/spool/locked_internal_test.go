package spool

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// A message that is done gives its key free before it is removed. When its row turns out to be locked, the key is closed again, behind what
// runs by then, and nothing but that message opens it.
func TestScheduler_hold_closes_the_key_again(t *testing.T) {
	t.Parallel()
	s := ready(1)
	s.load([]*Message{stored(1, "a", 7), stored(2, "a", 7), stored(3, "a", 7)})
	first := s.next()
	s.finish(first, one(Done))
	s.takeFinished()
	second := s.next()
	require.Equal(t, []int64{2}, ids(second))
	s.hold(first[0])
	require.False(t, first[0].simple())
	s.finish(second, one(Done))
	s.settle()
	require.Nil(t, s.next(), "the third one was put back")
	require.Len(t, s.load([]*Message{stored(3, "a", 7)}), 1, "the key is closed")
	s.settled(first)
	require.Empty(t, s.keys)
	require.Empty(t, s.load([]*Message{stored(3, "a", 7)}))
	require.Equal(t, []int64{3}, ids(s.next()))
}

// The lock goes while the next message of the key runs, perhaps for hours. What is read then goes behind that one: if it were left out, it
// would be read again and again.
func TestScheduler_hold_ends_while_a_later_message_runs(t *testing.T) {
	t.Parallel()
	s := ready(1)
	s.load([]*Message{stored(1, "a", 7), stored(2, "a", 7)})
	first := s.next()
	s.finish(first, one(Done))
	s.takeFinished()
	second := s.next()
	s.hold(first[0])
	s.settled(first)
	require.Empty(t, s.load([]*Message{stored(3, "a", 7)}))
	require.Nil(t, s.next(), "the second one runs")
	s.finish(second, one(Done))
	require.Equal(t, []int64{3}, ids(s.next()))
}

// What failed together with a message whose row is locked, and stands behind it, is not settled before it.
func TestAddBehind_adds_what_stands_behind_a_locked_message_of_its_key(t *testing.T) {
	t.Parallel()
	var failed []*entry
	for _, m := range []*Message{stored(4, "a", 7), stored(2, "a", 7), stored(1, "a", 7), stored(3, "a", 8), stored(5, "a", 9), stored(6, "a", 9)} {
		failed = append(failed, &entry{message: m})
	}
	free := &Message{Ref: dialect.Ref{ID: 7}}
	failed = append(failed, &entry{message: free})
	locked := map[int64]bool{2: true, 5: true}
	addBehind(locked, failed)
	require.Equal(t, map[int64]bool{2: true, 4: true, 5: true, 6: true}, locked)
}

// The same where the next message of the key was offered and does not run.
func TestScheduler_hold_takes_back_what_was_offered(t *testing.T) {
	t.Parallel()
	s := ready(1)
	s.load([]*Message{stored(1, "a", 7), stored(2, "a", 7)})
	first := s.next()
	s.finish(first, one(Done))
	s.takeFinished()
	s.hold(first[0])
	require.Nil(t, s.next())
	s.settle()
	require.Len(t, s.load([]*Message{stored(2, "a", 7)}), 1)
	s.settled(first)
	require.Empty(t, s.load([]*Message{stored(2, "a", 7)}))
	require.Equal(t, []int64{2}, ids(s.next()))
}

// A message that must run alone lets the next one of its kind run when it is held: the lock may last.
func TestScheduler_hold_lets_the_next_suspect_run(t *testing.T) {
	t.Parallel()
	s := ready(1)
	s.load([]*Message{started(1, "a", 7, 1), started(2, "a", 8, 1)})
	first := s.next()
	require.Nil(t, s.next())
	s.finish(first, one(Retry))
	s.takeFinished()
	s.hold(first[0])
	require.Equal(t, []int64{2}, ids(s.next()))
	s.settled(first)
	require.Nil(t, s.next())
}

// A removal finds out that a row is locked although the server would wait for longer than the whole statement may take.
func TestRemoval_gives_up_waiting_for_a_lock(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		c := newCounter(t, database)
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
			if c.d.spool.statements.Impatient != "" { // the server gives up by itself, and leaves nothing locked
				_, err := c.d.removeAtOnce(t.Context(), refs, manner{keep: keep})
				require.Equal(t, dialect.Conflict, c.d.spool.statements.Kind.Classify(err))
			}
			left, err := c.d.remove(t.Context(), refs, manner{keep: keep})
			require.NoError(t, err)
			require.Equal(t, keep, left.missing, "the first time all others are removed")
			require.Equal(t, map[int64]bool{locked: true}, left.locked)
		}
		require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_messages"))
	})
}

func TestLaneSet_surplus_keeps_lanes_with_held_messages(t *testing.T) {
	t.Parallel()
	set := newLaneSet()
	for number := range 4 {
		set.held[number] = &lane{number: number}
	}
	require.Empty(t, set.surplus(4, nil))
	require.Equal(t, []int{2, 3}, set.surplus(2, nil))
	require.Equal(t, []int{1, 2}, set.surplus(2, map[int]bool{3: true}))
	require.Equal(t, []int{1}, set.surplus(0, map[int]bool{0: true, 2: true, 3: true}))
	set.held[1].leaving, set.held[1].hint = true, 9
	set.held[1].stay(5)
	require.Equal(t, &lane{number: 1}, set.held[1])
}
