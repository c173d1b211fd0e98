package counts

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

func TestNumber_sums_are_as_accurate_as_their_least_accurate_part(t *testing.T) {
	t.Parallel()
	require.Equal(t, exactly(3), exactly(1).plus(exactly(2)))
	require.Equal(t, counted(3), exactly(1).plus(counted(2)))
	require.Equal(t, counted(3), counted(1).plus(exactly(2)))
	require.Equal(t, atLeast(3), counted(1).plus(atLeast(2)))
	require.Equal(t, atLeast(3), atLeast(1).plus(counted(2)))
}

// The number goes up the ladder and down again.
func TestReader_is_exact_up_to_the_limit_then_a_lower_bound_then_an_earlier_count(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		require.Equal(t, exactly(0), b.read().Pending)
		b.ready(limit)
		require.Equal(t, exactly(limit), b.read().Pending)
		require.Equal(t, 1, b.round(b.counter()), "nothing is above the limit")
		b.ready(1)
		require.Equal(t, atLeast(limit), b.read().Pending)
		require.Equal(t, atLeast(limit), b.read().Due)
		require.Zero(t, b.read().CountedAge)

		b.ready(20)
		c := b.counter()
		require.False(t, b.step(c))
		require.False(t, b.step(c))
		require.Equal(t, atLeast(limit), b.read().Pending, "a count that has not ended is not used")
		b.round(c)
		found := b.read()
		require.Equal(t, counted(limit+21), found.Pending)
		require.Equal(t, counted(limit+21), found.Due)
		require.Equal(t, exactly(0), found.Dead, "other numbers stay exact")
		require.Less(t, found.CountedAge, time.Minute)

		b.ready(9)
		require.Equal(t, 1, b.round(b.counter()), "another process begins no count as long as the last one is young")
		require.Equal(t, counted(limit+21), b.read().Pending)
		b.outdate()
		require.Greater(t, b.read().CountedAge, 24*time.Hour)
		b.round(b.counter())
		require.Equal(t, counted(limit+30), b.read().Pending)

		b.exec("DELETE FROM postbox_messages WHERE id > (SELECT m FROM (SELECT MIN(id) + 4 AS m FROM postbox_messages) x)")
		found = b.read()
		require.Equal(t, exactly(5), found.Pending, "what was counted earlier is not used")
		require.Zero(t, found.CountedAge)
		b.round(b.counter())
		require.JSONEq(t, "{}", string(b.stored()), "and is forgotten")
	})
}

// An earlier count that is smaller than what is seen now is out of date.
func TestReader_prefers_a_lower_bound_to_a_count_below_it(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	b := newBench(t, database)
	b.ready(limit + 1)
	b.exec("UPDATE postbox_chores SET progress = ? WHERE name = ?", fmt.Appendf(nil, `{"ready":{"%d":{"at":5,"n":%d}}}`, b.id, limit), Task)
	require.Equal(t, atLeast(limit), b.read().Pending)
	b.exec("UPDATE postbox_chores SET progress = ? WHERE name = ?", []byte("\xff no JSON"), Task)
	require.Equal(t, atLeast(limit), b.read().Pending, "what cannot be read is no snapshot")
	b.round(b.counter())
	require.Equal(t, counted(limit+1), b.read().Pending)
}

// Before many dead letters are counted, and if none were open when they were, an alert must not end because of their number.
func TestReader_finds_more_dead_letters_than_it_counts(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.letters(limit, 0, "")
		require.Equal(t, exactly(limit), b.read().Dead)
		b.letters(1, 0, "")
		require.Equal(t, atLeast(limit), b.read().Dead)
		b.exec("UPDATE postbox_dead_letters SET resolved_at = 1, died_at = 1")
		b.round(b.counter())
		require.Equal(t, counted(0), b.read().Dead)
		b.letters(limit+1, 0, "")
		require.Equal(t, atLeast(limit), b.read().Dead, "the count is out of date")
	})
}

func TestCounter_counts_each_part(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.ready(60)
		// Ids need not begin at 1.
		first := database.Count(t, "SELECT MIN(id) FROM postbox_messages")
		parts := []struct {
			from, to, state, attempts int
			wait                      int64
		}{{0, 15, 1, 0, time.Hour.Microseconds()}, {15, 27, 1, 0, 0}, {27, 40, 2, 1, time.Hour.Microseconds()}, {40, 44, 2, 0, 0}, {44, 56, 2, 3, dialect.ParkDelay}}
		for _, p := range parts {
			b.exec("UPDATE postbox_messages SET state = ?, attempts = ?, available_at = available_at + ? WHERE id >= ? AND id < ?",
				p.state, p.attempts, p.wait, first+p.from, first+p.to)
		}
		database.MoveWaiting(t)
		b.letters(20, 4, "")
		b.letters(7, 0, "billing")
		b.letters(6, 5, "mail")
		b.letters(3, 3, "resolved")
		b.done(1, 25)

		found := b.read()
		require.Equal(t, Numbers{
			Pending: atLeast(4 + limit), Due: atLeast(4 + limit), Failing: atLeast(found.Failing.N), Parked: atLeast(limit),
			Dead: atLeast(found.Dead.N), Done: atLeast(limit), DueAge: found.DueAge, OldestAge: found.OldestAge,
		}, found)
		require.LessOrEqual(t, found.Dead.N, limit)
		for _, inbox := range b.inboxes() {
			require.Equal(t, AtLeast, inbox.Dead.Accuracy, inbox.Consumer)
		}

		b.round(b.counter())
		found = b.read()
		require.Positive(t, found.CountedAge)
		require.Equal(t, Numbers{
			Pending: counted(60), Due: counted(4 + 16), Failing: counted(25), Parked: counted(12), Dead: counted(16), Done: counted(25),
			CountedAge: found.CountedAge, DueAge: found.DueAge, OldestAge: found.OldestAge,
		}, found)
		inboxes := b.inboxes()
		require.Len(t, inboxes, 2)
		require.Positive(t, inboxes[0].CountedAge)
		require.Equal(t, []Inbox{
			{Consumer: "billing", Dead: counted(7), CountedAge: inboxes[0].CountedAge}, {Consumer: "mail", Dead: counted(1), CountedAge: inboxes[1].CountedAge},
		}, inboxes)
	})
}

// The number of waiting messages says nothing of those that are due, failing or parked.
func TestReader_counts_few_parked_messages_among_many_that_wait(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.ready(40)
		b.exec("UPDATE postbox_messages SET state = 1, available_at = available_at + ?", time.Hour.Microseconds())
		b.exec("UPDATE postbox_messages SET state = 2, attempts = 5, available_at = available_at + ? WHERE id % 8 = 0", dialect.ParkDelay)
		database.MoveWaiting(t)
		found := b.read()
		require.Equal(t, atLeast(limit), found.Pending)
		require.Equal(t, []Number{exactly(0), exactly(5), exactly(5)}, []Number{found.Due, found.Parked, found.Failing})
		require.Zero(t, found.DueAge, "nothing is due")
	})
}

func TestReader_finds_the_oldest_message_and_the_oldest_due_one(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		require.Zero(t, b.read().OldestAge)
		b.ready(3)
		first := database.Count(t, "SELECT MIN(id) FROM postbox_messages")
		age := func(i int, hours int) {
			b.exec("UPDATE postbox_messages SET created_at = created_at - ? WHERE id = ?", int64(hours)*time.Hour.Microseconds(), first+i)
		}
		require.Less(t, b.read().DueAge, 10*time.Minute)
		age(0, 9)
		b.exec("UPDATE postbox_messages SET state = 1, available_at = available_at + ? WHERE id = ?", time.Hour.Microseconds(), first)
		database.MoveWaiting(t)
		require.InDelta(t, 9*time.Hour, b.read().OldestAge, float64(10*time.Minute))
		require.Less(t, b.read().DueAge, 10*time.Minute, "a scheduled message is not due")
		b.exec("UPDATE postbox_messages SET available_at = available_at - ? WHERE id = ?", 3*time.Hour.Microseconds(), first)
		require.InDelta(t, 2*time.Hour, b.read().DueAge, float64(10*time.Minute))
		age(2, 5)
		require.InDelta(t, 5*time.Hour, b.read().DueAge, float64(10*time.Minute))
		require.InDelta(t, 9*time.Hour, b.read().OldestAge, float64(10*time.Minute))
	})
}

// MySQL stores up to 64 KB.
func TestSnapshot_has_room_for_the_largest_numbers(t *testing.T) {
	t.Parallel()
	s := Snapshot{
		Ready: map[int64]Count{}, Waiting: map[int64]Count{}, Done: map[int64]Count{},
		Letters: Letters{At: 1 << 60, Cost: 1 << 60, Spools: map[int64]int{}, Consumers: map[string]int{}},
	}
	for i := range 5000 {
		count := Count{At: 1 << 60, Cost: 1 << 60, N: 1<<60 + i, Due: 1 << 60, Failing: 1 << 60, Parked: 1 << 60}
		id := int64(1<<60 + i)
		s.Ready[id], s.Waiting[id], s.Done[id], s.Letters.Spools[id] = count, count, count, count.N
		s.Letters.Consumers[fmt.Sprint(i, strings.Repeat("\x00", 250))] = count.N
	}
	text, err := s.Encode()
	require.NoError(t, err)
	require.Less(t, len(text), 64<<10)
	require.True(t, json.Valid(text))
	kept := Decode(text)
	require.Len(t, kept.Ready, maxCounts)
	require.Contains(t, kept.Ready, int64(1<<60+4999), "the largest")
	require.NotEmpty(t, kept.Letters.Consumers)
	require.Len(t, s.Ready, 5000, "it is not changed")

	// What was left out is not known to be 0.
	some := capped{letters: limit + 1}
	require.Equal(t, atLeast(0), some.numbers(limit, kept, 1<<60, &dialect.Ages{}).Dead)
	require.Equal(t, Counted, some.numbers(limit, kept, 1<<60+4999, &dialect.Ages{}).Dead.Accuracy)
	_, at := kept.Letters.ofConsumer("billing")
	require.Zero(t, at)
	whole, err := Snapshot{Letters: Letters{At: 1, Spools: map[int64]int{7: 1}, Consumers: map[string]int{"mail": 1}}}.Encode()
	require.NoError(t, err)
	require.Equal(t, counted(0), some.numbers(limit, Decode(whole), 1<<60, &dialect.Ages{}).Dead, "all of them are resolved")
}

// While messages are written, and a process counts, no number is more than there is.
func TestReader_G9_says_the_truth_while_messages_are_written(t *testing.T) {
	t.Parallel()
	const messages = 40
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		var begun, written atomic.Int32
		var writer sync.WaitGroup
		writer.Go(func() {
			for range messages {
				begun.Add(1)
				b.ready(1)
				written.Add(1)
			}
		})
		defer writer.Wait()
		seen, c := map[Accuracy]bool{}, b.counter()
		for {
			least := int(written.Load())
			found := b.read().Pending
			most := int(begun.Load())
			require.LessOrEqual(t, found.N, most, found)
			switch found.Accuracy {
			case Exact:
				require.GreaterOrEqual(t, found.N, least)
			case AtLeast:
				require.Equal(t, limit, found.N)
			case Counted:
				require.Greater(t, found.N, limit)
			}
			seen[found.Accuracy] = true
			if least == messages && seen[Counted] {
				break
			}
			b.step(c)
		}
		require.True(t, seen[AtLeast], "it was read while it was counted")
	})
}
