package drain

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// A read of all lanes up to an id has all that is ready up to there, and where the database has
// given higher ids it knows nothing beyond.
func TestPage_up_to_an_id_is_complete_up_to_there(t *testing.T) {
	t.Parallel()
	const before, upTo, safe, ready = 10, 50, 100, 4
	message := func(state, lane int, id int64) *spool.Message {
		return &spool.Message{HasKey: true, Ref: dialect.Ref{State: state, Lane: lane, ID: id}}
	}
	for name, c := range map[string]struct {
		given   int64
		hasMore []int
	}{
		"it reached the end":  {upTo, nil},
		"there may be others": {upTo + 1, []int{0, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lanes := newLaneSet()
			params := dialect.FetchParams{UpTo: upTo, PerLane: 1}
			for number := range 2 {
				lanes.held[number] = &lane{number: number, cursor: before}
				params.Cursors = append(params.Cursors, dialect.Cursor{Lane: number, After: before})
			}
			found := &page{perLane: map[int]int{}, last: map[int]int64{}, meta: meta{given: c.given}}
			for _, id := range []int64{20, 25, 30, upTo} {
				found.count(message(dialect.StateReady, 0, id))
			}
			found.count(message(dialect.StateScheduled, 1, upTo))
			found.count(message(dialect.StateScheduled, 1, upTo+1)) // an older one of its key may stand between it and the end of the read
			r := &reader{core: &core{lanes: lanes}}
			r.trimEarly(params, found)
			r.remember(params, found, safe)
			require.Len(t, found.messages, ready+1)
			require.Equal(t, c.hasMore, lanes.hasMore())
			for number, l := range lanes.held {
				require.Equal(t, int64(upTo), l.cursor, "lane %d", number)
			}
		})
	}
}

// A read of all lanes up to an id begins at the lowest cursor, or it would miss messages of that
// lane. It is chosen only if it reaches the highest id that the database has given.
func TestReadTogether_begins_at_the_lowest_cursor(t *testing.T) {
	t.Parallel()
	const lowest, limit = 10, 100
	for name, c := range map[string]struct {
		readsUpTo, hasMore bool
		given              int64
		dense              bool
		safe               int64
		upTo               int64
	}{
		"it reaches the end":           {readsUpTo: true, given: lowest + limit, upTo: lowest + limit},
		"more ids were given":          {readsUpTo: true, given: lowest + limit + 1, safe: lowest + limit},
		"and most are of messages":     {readsUpTo: true, given: lowest + limit + 1, safe: lowest + limit, dense: true, hasMore: true, upTo: lowest + limit},
		"and they may not be final":    {readsUpTo: true, given: lowest + limit + 1, safe: lowest + limit - 1, dense: true, hasMore: true},
		"the counter is not known":     {readsUpTo: true},
		"a lane has more to be read":   {readsUpTo: true, hasMore: true, given: lowest + limit},
		"the database has no such way": {given: lowest + limit},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &reader{
				core: &core{lanes: newLaneSet(), spool: &spool.Spool{Statements: &dialect.Statements{ReadsUpTo: c.readsUpTo}}},
				last: lastRead{given: c.given, dense: c.dense}, watermark: watermark{safe: c.safe},
			}
			r.lanes.held[0] = &lane{hasMore: c.hasMore}
			from := map[int]int64{0: 30, 1: lowest, 2: 20}
			begins := map[int]int64{0: 30, 1: lowest, 2: 20}
			if c.upTo > 0 {
				begins = map[int]int64{0: lowest, 1: lowest, 2: lowest}
			}
			require.Equal(t, c.upTo, r.readTogether(from, limit))
			require.Equal(t, begins, from)
		})
	}
}

func TestPage_is_dense_if_its_messages_have_most_of_the_ids(t *testing.T) {
	t.Parallel()
	dense := func(state int, ids ...int64) bool {
		found := &page{perLane: map[int]int{}, last: map[int]int64{}}
		for _, id := range ids {
			found.count(&spool.Message{Ref: dialect.Ref{State: state, ID: id}})
		}
		return found.dense()
	}
	require.True(t, dense(dialect.StateReady, 1001, 1002, 1004, 1005))
	require.False(t, dense(dialect.StateReady, 1001, 1004, 1010))
	require.False(t, dense(dialect.StateReady))
	require.False(t, dense(dialect.StateRetrying, 1001, 1002), "they are read in another part")
}

// Without the row of what the database says of itself, a page would look like one of a database
// that went back.
func TestPage_that_ends_before_its_last_row_is_an_error(t *testing.T) {
	t.Parallel()
	rows, err := testdb.SQLite(t).DB.QueryContext(t.Context(), "SELECT 1 WHERE 1 = 0")
	require.NoError(t, err)
	defer func() { require.NoError(t, rows.Close()) }()
	_, err = readPage(rows, newLaneSet(), false)
	require.ErrorIs(t, err, errCutShort)
	require.NoError(t, rows.Err())
}

// A database that reads as many due messages of each state may return twice as many as there is
// room for.
func TestPage_keeps_no_more_due_messages_than_the_read_asked_for(t *testing.T) {
	t.Parallel()
	const ready = 2
	for name, c := range map[string]struct {
		due, retrying, scheduled, keepRetrying, keepScheduled int
		turn                                                  dueTurn // of the read before
	}{
		"few":                     {5, 2, 3, 2, 3, false},
		"many of both":            {5, 5, 5, 3, 2, true},
		"many of both, next turn": {5, 5, 5, 2, 3, false},
		"few scheduled":           {5, 5, 1, 4, 1, true},
		"few retrying":            {5, 1, 5, 1, 4, false},
		"retrying alone":          {5, 5, 0, 5, 0, false},
		"one":                     {1, 1, 1, 1, 0, true},
		"one, next turn":          {1, 1, 1, 0, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found, id := &page{perLane: map[int]int{}, last: map[int]int64{}}, int64(0)
			add := func(n, state int) (ids []int64) {
				for range n {
					id++
					ids = append(ids, id)
					found.count(&spool.Message{Ref: dialect.Ref{State: state, ID: id}})
				}
				return ids
			}
			want := add(ready, dialect.StateReady)
			want = append(want, add(c.retrying, dialect.StateRetrying)[:c.keepRetrying]...)
			want = append(want, add(c.scheduled, dialect.StateScheduled)[:c.keepScheduled]...)
			turn := c.turn
			found.trimDue(dialect.FetchParams{Due: c.due}, &turn)
			var kept []int64
			for _, m := range found.messages {
				kept = append(kept, m.Ref.ID)
			}
			require.Equal(t, want, kept)
			require.Equal(t, c.keepRetrying+c.keepScheduled, found.waited)
		})
	}
}
