package drain

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/schedule"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// Reads go over the messages of a limited topic that wait, to find others behind them, once and not
// each time that the topic is read again. They do go over those that appear there meanwhile, or
// that were left out together with others.
func TestDrainer_G3_G8_reads_go_on_behind_a_limited_topic(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	d, end := newStepped(database.DB, newOutbox(t, database), 20)
	defer end()
	l := &lane{}
	d.lanes.held = map[int]*lane{0: l, 1: {number: 1}}
	limit := postbox.Limit{PerSecond: 0.001}
	d.scheduler.SetLimits(postbox.Limits{Topics: map[string]postbox.Limit{"a": limit, "b": limit}})
	d.scheduler.SetWorkers(1)
	d.scheduler.Extend(time.Now().Add(time.Hour))
	id := int64(0)
	fill := func(topic string, lane int) { // as if a page had been read
		var page []*spool.Message
		for range 20 {
			id++
			page = append(page, &spool.Message{Ref: dialect.Ref{ID: id, Lane: lane}, Topic: topic})
		}
		d.scheduler.Load(page)
		require.Nil(t, d.scheduler.TryTake())
		l.cursor = id
	}
	empty := func(lane int) { d.scheduler.Drop([]int{lane}) } // as if its messages had been handed out
	left := func(topics ...string) {
		t.Helper()
		d.reader.leaveOut()
		require.Equal(t, topics, d.reader.leftOut.byLimits)
	}

	fill("a", 0)
	left("a")
	l.cursor = 1000
	empty(0)
	left()
	require.EqualValues(t, 20, l.cursor, "the topic is read where it was left out")
	fill("a", 0)
	left("a")
	require.EqualValues(t, 1000, l.cursor, "what is behind was read before")
	require.EqualValues(t, 40, l.leftOutFrom)

	empty(0)
	left()
	l.lower(300)
	fill("a", 0)
	left("a")
	require.EqualValues(t, 299, l.cursor, "a transaction has committed late")
	l.cursor = 1000
	empty(0)
	left()
	d.lanes.rewind()
	fill("a", 0)
	left("a")
	require.Equal(t, id, l.cursor, "an operator has changed something")

	l.cursor = 1000
	empty(0)
	left()
	fill("b", 1)
	left("b")
	require.Equal(t, id, l.cursor, "messages of the other topic were not left out there")
	fill("a", 0)
	left("a", "b")
	require.EqualValues(t, 1000, l.cursor)
	empty(1)
	left("a")
	back := l.cursor
	require.Less(t, back, int64(1000))
	empty(0)
	left()
	fill("a", 0)
	left("a")
	require.Equal(t, id, l.cursor, "both were left out")
	fill("b", 1)
	left("a", "b")
	require.EqualValues(t, 1000, l.cursor)
}

// A third process has read both slots between the two statements. If the tokens were the same, what
// it has read of one slot would fit the other one, and it would take the slot from this process.
func TestDrainer_G8_slots_that_are_given_back_and_taken_in_one_step_have_different_tokens(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		d := New(database.DB, newOutbox(t, database), nil, Config{Identity: Identity{Holder: "one"}}, watermill.NopLogger{})
		limit := dialect.Limit{}
		require.NoError(t, spool.Run(t.Context(), database.DB, d.spool.Statements.AddSlots(limit, []int64{0, 1, 2})))
		read, _, err := d.limits.readLimits(t.Context())
		require.NoError(t, err)
		require.NoError(t, spool.Run(t.Context(), database.DB, d.spool.Statements.ChangeSlots(limit, "one", 1, read[""][2:])))
		read, now, err := d.limits.readLimits(t.Context())
		require.NoError(t, err)
		ask := schedule.Ask{Limit: postbox.Limit{MaxConcurrent: 2}, Slots: 1}
		require.NoError(t, d.limits.takeFrom(t.Context(), &ask, read[""], now))
		require.Equal(t, []int64{1}, ask.Got)
		read, _, err = d.limits.readLimits(t.Context())
		require.NoError(t, err)
		require.Equal(t, "mine", read[""][1].State)
		require.Equal(t, "free", read[""][2].State)
		require.NotEqual(t, read[""][1].Token, read[""][2].Token)
	})
}

// The clock of the process is an hour ahead of that of the database. Nothing was saved up before
// the limit was there, and it takes nothing of the next hour either.
func TestDrainer_G11_a_new_limit_begins_at_the_time_of_the_database(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		d := New(database.DB, newOutbox(t, database), nil, Config{Identity: Identity{Holder: "one"}}, watermill.NopLogger{})
		d.databaseAhead = time.Hour
		ask := schedule.Ask{Limit: postbox.Limit{PerSecond: 1}, Most: 1, Least: 1}
		read, now, err := d.limits.slotsFor(t.Context(), []schedule.Ask{ask})
		require.NoError(t, err)
		require.NoError(t, d.limits.takeFrom(t.Context(), &ask, read[""], now))
		require.Zero(t, ask.Tokens)
		require.Len(t, read[""], 1)
		require.WithinDuration(t, time.UnixMicro(now), time.UnixMicro(read[""][0].Token), time.Minute)
	})
}

// Slots that are added have no pause before they are taken.
func TestDrainer_a_new_limit_is_taken_in_the_step_that_adds_it(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		d := New(database.DB, newOutbox(t, database), nil, Config{Identity: Identity{Holder: "one"}}, watermill.NopLogger{})
		ask := schedule.Ask{Limit: postbox.Limit{MaxConcurrent: 5}, Slots: 3}
		read, now, err := d.limits.slotsFor(t.Context(), []schedule.Ask{ask})
		require.NoError(t, err)
		require.NoError(t, d.limits.takeFrom(t.Context(), &ask, read[""], now))
		require.Equal(t, []int64{1, 2, 3}, ask.Got)
	})
}

// A service may limit each of thousands of customers. Those that ask get their rows, and all are
// read once more after that.
func TestDrainer_G8_many_new_limits_take_a_round_trip_each(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		far, distance := database.OpenDistant(t)
		d := New(far, newOutbox(t, database), nil, Config{Identity: Identity{Holder: "one"}}, watermill.NopLogger{})
		const topics, asking = 60, 20
		asks := make([]schedule.Ask, topics)
		for i := range asks {
			asks[i] = schedule.Ask{Topic: fmt.Sprint("customer ", i), Limit: postbox.Limit{PerSecond: 1}}
			if i < asking {
				asks[i].Most, asks[i].Least = 1, 1
			}
		}
		before := distance.Trips()
		slots, _, err := d.limits.slotsFor(t.Context(), asks)
		require.NoError(t, err)
		require.Len(t, slots, asking)
		const most = 3 * (asking + 2) // a statement that is executed for the first time takes up to three
		require.LessOrEqual(t, distance.Trips()-before, most)
	})
}
