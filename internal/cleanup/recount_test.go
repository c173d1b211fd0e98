package cleanup_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/cleanup"
	"github.com/postbox-go/watermill-postbox/internal/counts"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/enginetest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

func countConfig() cleanup.Config {
	return cleanup.Config{Interval: 10 * time.Millisecond, Lease: time.Minute, Counts: true}
}

// pendingOf returns what operators see of the outbox.
func (b *bench) pendingOf() counts.Number {
	b.T.Helper()
	id, err := b.Spool.Open(b.T.Context(), b.Database.DB)
	require.NoError(b.T, err)
	numbers, err := counts.NewReader(b.Database.DB, b.Statements, counts.Cap).Spools(b.T.Context(), []int64{id})
	require.NoError(b.T, err)
	return numbers[id].Pending
}

// ageCounts makes what is stored old: a count stays for 150 times as long as it took, which may be
// minutes on a busy machine.
func (b *bench) ageCounts() {
	b.T.Helper()
	var stored []byte
	require.NoError(b.T, b.Database.DB.QueryRowContext(b.T.Context(), b.Statements.ChoreCursor, counts.Task).Scan(&stored))
	known := counts.Decode(stored)
	require.Len(b.T, known.Ready, 1)
	for id, count := range known.Ready {
		count.At = 1
		known.Ready[id] = count
	}
	stored, err := known.Encode()
	require.NoError(b.T, err)
	b.Database.Exec(b.T, "UPDATE postbox_chores SET progress = ? WHERE name = ?", stored, counts.Task)
}

// The process that counts dies, and another one goes on with what it has stored.
func TestCleaner_counts_what_is_too_much_to_count_each_time(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		const more = 345
		for left := counts.Cap + more; left > 0; left -= 1000 {
			b.Append(database.DB, enginetest.Drafts(min(left, 1000), func(int) string { return "" })...)
		}
		require.Equal(t, counts.Number{N: counts.Cap, Accuracy: counts.AtLeast}, b.pendingOf())

		// A process that has died holds the task for a while.
		database.Exec(t, b.Statements.AddChore, counts.Task)
		take := b.Statements.TakeChore(dialect.Chore{Name: counts.Task, Holder: "dead"}, time.Hour.Microseconds())
		_, err := database.DB.ExecContext(t.Context(), take.Text, take.Args...)
		require.NoError(t, err)
		stop, log := b.clean(database.DB, "one", countConfig())
		database.Exec(t, "UPDATE postbox_chores SET expires_at = 0")
		all := counts.Number{N: counts.Cap + more, Accuracy: counts.Counted}
		b.Eventually(func() bool { return b.pendingOf() == all }, "it is counted")
		stop()
		require.Empty(t, log.At(watermill.ErrorLogLevel))

		b.Append(database.DB, enginetest.Drafts(5, func(int) string { return "" })...)
		b.ageCounts()
		stop, _ = b.clean(database.DB, "two", countConfig())
		defer stop()
		all.N += 5
		b.Eventually(func() bool { return b.pendingOf() == all }, "it is counted anew")
	})
}
