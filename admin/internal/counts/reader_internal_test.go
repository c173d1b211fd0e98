package counts

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin/internal/operatorsql"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

func TestReader_is_exact_up_to_the_limit_and_then_says_that_there_are_more(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		require.Zero(t, b.read().Pending)
		b.ready(limit)
		require.Equal(t, limit, b.read().Pending)
		b.ready(1)
		require.Equal(t, []int{limit + 1, limit + 1, 0}, []int{b.read().Pending, b.read().Due, b.read().Dead})
		b.ready(20)
		require.Equal(t, limit+1, b.read().Pending)
		b.exec("DELETE FROM postbox_messages WHERE id > (SELECT m FROM (SELECT MIN(id) + 4 AS m FROM postbox_messages) x)")
		require.Equal(t, 5, b.read().Pending)
	})
}

// An alert must not end because of the number of dead letters.
func TestReader_finds_more_dead_letters_than_it_counts(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.letters(limit, 0, "")
		require.Equal(t, limit, b.read().Dead)
		b.letters(1, 0, "")
		require.Equal(t, limit+1, b.read().Dead)
		b.exec("UPDATE postbox_dead_letters SET resolved_at = 1, died_at = 1")
		require.Zero(t, b.read().Dead)
		b.letters(limit+1, 0, "")
		require.Equal(t, limit+1, b.read().Dead, "the latest count")
	})
}

func TestReader_counts_each_part(t *testing.T) {
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

		for _, test := range []struct {
			limit int
			want  Numbers
		}{
			{100, Numbers{Pending: 60, Due: 4 + 16, Failing: 25, Parked: 12, Dead: 16, Done: 25}},
			{limit, Numbers{Pending: limit + 1, Due: limit + 1, Failing: limit + 1, Parked: limit + 1, Dead: limit + 1, Done: limit + 1}},
		} {
			reader := NewReader(b.Database.DB, operatorsql.New(b.Statements), test.limit)
			found, err := reader.Spools(t.Context(), []int64{b.id})
			require.NoError(t, err)
			numbers := found[b.id]
			require.Positive(t, numbers.OldestAge)
			test.want.DueAge, test.want.OldestAge = numbers.DueAge, numbers.OldestAge
			if test.limit == limit { // some of those that were looked at are resolved, or have not failed
				require.LessOrEqual(t, max(numbers.Dead, numbers.Failing), limit+1)
				test.want.Dead, test.want.Failing = numbers.Dead, numbers.Failing
			}
			require.Equal(t, test.want, numbers)
		}
		inboxes, err := NewReader(b.Database.DB, operatorsql.New(b.Statements), 100).Inboxes(t.Context())
		require.NoError(t, err)
		require.Equal(t, []Inbox{{Consumer: "billing", Dead: 7}, {Consumer: "mail", Dead: 1}}, inboxes)
		total := 0
		for _, inbox := range b.inboxes() {
			total += inbox.Dead
		}
		require.LessOrEqual(t, total, limit+1)
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
		require.Equal(t, limit+1, found.Pending)
		require.Equal(t, []int{0, 5, 5}, []int{found.Due, found.Parked, found.Failing})
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

// While messages are written, no number is more than there is.
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
		for least := 0; least < messages; {
			least = int(written.Load())
			found := b.read().Pending
			require.LessOrEqual(t, found, int(begun.Load()))
			require.GreaterOrEqual(t, found, min(least, limit+1))
		}
	})
}
