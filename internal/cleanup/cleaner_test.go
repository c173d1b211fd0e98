package cleanup_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/cleanup"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/enginetest"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

const (
	retention = time.Hour
	old       = 2 * time.Hour    // beyond it
	middle    = 30 * time.Minute // within it, and beyond the shorter one of some tests
	young     = time.Minute
	batch     = 10
)

func cleanerConfig() cleanup.Config {
	return cleanup.Config{
		Interval: 10 * time.Millisecond, Lease: time.Minute, Batch: batch,
		DeadLetters: retention, Failures: retention, Claims: retention,
	}
}

// clean starts a cleaner and returns what ends it and what it logged.
func (b *bench) clean(db *sql.DB, holder string, config cleanup.Config) (stop func(), log *enginetest.Journal) {
	b.T.Helper()
	log = enginetest.NewJournal()
	cleaner := cleanup.New(db, b.Statements, holder, config, log)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		cleaner.Run(ctx)
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	b.T.Cleanup(stop)
	return stop, log
}

// fill writes so many rows of that age into each table that a cleaner looks after.
func (b *bench) fill(n int, age time.Duration) {
	b.T.Helper()
	at := time.Now().Add(-age).UnixMicro()
	require.NoError(b.T, spool.InTx(b.T.Context(), b.Database.DB, b.Statements, func(tx *sql.Tx) error {
		for i := range n {
			key := fmt.Appendf(nil, "%03d %s", i, age) // ages are mixed in the order of the keys
			for _, query := range []struct {
				text string
				args []any
			}{
				{"INSERT INTO postbox_claims (claim_key, claimed_at) VALUES (?, ?)", []any{key, at}},
				{
					"INSERT INTO postbox_failures (subject, attempt, failed_at, error, process) VALUES (?, 1, ?, 'no', 'test')",
					[]any{key, at},
				},
				{
					`INSERT INTO postbox_dead_letters (origin, subject, consumer, topic, message_id, payload, metadata,
					                                   created_at, died_at, attempts, error)
					 VALUES (1, ?, 'billing', 'orders', ?, ?, ?, ?, ?, 1, 'no')`,
					[]any{key, key, key, key, at, at},
				},
			} {
				if _, err := tx.ExecContext(b.T.Context(), b.Database.Bind(query.text), query.args...); err != nil {
					return err
				}
			}
		}
		return nil
	}))
}

// rows counts what is left in each table.
func (b *bench) rows() [3]int {
	b.T.Helper()
	return [3]int{
		b.Database.Count(b.T, "SELECT COUNT(*) FROM postbox_claims"),
		b.Database.Count(b.T, "SELECT COUNT(*) FROM postbox_failures"),
		b.Database.Count(b.T, "SELECT COUNT(*) FROM postbox_dead_letters"),
	}
}

// left says whether each table has so many rows left.
func (b *bench) left(n int) bool { return b.rows() == [3]int{n, n, n} }

// tasksOf counts the tasks of a holder.
func (b *bench) tasksOf(holder string) int {
	b.T.Helper()
	return b.Database.Count(b.T, "SELECT COUNT(*) FROM postbox_chores WHERE holder = ? AND expires_at > ?",
		holder, time.Now().UnixMicro())
}

// Also covers F18.
func TestCleaner_G8_deletes_only_old_rows_in_bounded_statements(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		database.DB.SetMaxOpenConns(1)
		b.fill(37, old)
		b.fill(15, young)
		stop, log := b.clean(database.DB, "one", cleanerConfig())
		b.Eventually(func() bool { return b.left(15) }, "the old rows are gone")
		require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_failures WHERE failed_at < ?", time.Now().Add(-retention).UnixMicro()))
		stop()
		require.True(t, b.left(15))

		removed := map[any]int{}
		for _, entry := range log.At(watermill.DebugLogLevel) {
			if rows, ok := entry.Fields["rows"].(int); ok {
				require.LessOrEqual(t, rows, batch)
				removed[entry.Fields["task"]] += rows
			}
		}
		require.Equal(t, map[any]int{"claims": 37, "failures": 37, "dead letters": 37}, removed)
		require.Empty(t, log.At(watermill.ErrorLogLevel))
		require.Zero(t, b.tasksOf("one"), "its tasks are handed back")
	})
}

// A full batch is followed by the next one at once, however long the pause is otherwise.
// Also covers feature 4.5.
func TestCleaner_F18_works_off_a_backlog_without_a_pause(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.fill(10*batch, old)
		config := cleanerConfig()
		config.Interval, config.Lease = time.Hour, 2*time.Hour
		b.clean(database.DB, "one", config)
		b.Eventually(func() bool { return b.left(0) }, "all rows are gone")
	})
}

func TestCleaner_G8_walks_through_young_claims_in_small_pauses(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.fill(5*batch, young)
		database.Exec(t, "INSERT INTO postbox_claims (claim_key, claimed_at) VALUES (?, 0)", []byte("~ the last"))
		config := cleanerConfig()
		config.Interval, config.Lease = time.Hour, 2*time.Hour
		b.clean(database.DB, "one", config)
		b.Eventually(func() bool { return b.left(5 * batch) }, "the last claim is found")
	})
}

// Two cleaners with different retentions: what is left shows which of them works.
func TestCleaner_F18_one_process_at_a_time(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		stop, _ := b.clean(database.DB, "one", cleanerConfig())
		b.Eventually(func() bool { return b.tasksOf("one") == 3 }, "the first takes all tasks")
		shorter := cleanerConfig()
		shorter.DeadLetters, shorter.Failures = middle/2, middle/2
		shorter.Claims = 10 * time.Second // a walk starts every 200 ms: the first may begin where the other one ended
		b.clean(database.Open(t), "two", shorter)

		b.fill(2*batch, middle)
		for round := range 5 { // each takes many intervals of both
			b.fill(2*batch, old+time.Duration(round))
			b.Eventually(func() bool { return b.rows()[1] == 2*batch && b.rows()[2] == 2*batch }, "the first works")
			require.Equal(t, 3, b.tasksOf("one"))
		}
		stop()
		b.Eventually(func() bool { return b.left(0) }, "the second goes on at once")
		require.Equal(t, 3, b.tasksOf("two"))
	})
}

func TestCleaner_F18_goes_on_when_the_holder_was_killed(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.fill(3*batch, old)
		for _, task := range []string{"dead letters", "failures", "claims"} {
			database.Exec(t, "INSERT INTO postbox_chores (name, holder, expires_at, progress) VALUES (?, 'killed', ?, ?)",
				task, time.Now().Add(time.Second).UnixMicro(), []byte("015"))
		}
		_, log := b.clean(database.DB, "heir", cleanerConfig())
		b.Eventually(func() bool { return b.tasksOf("heir") == 3 }, "the leases run out")
		b.Eventually(func() bool {
			return b.rows()[1] == 0 && b.rows()[2] == 0 && b.rows()[0] <= 15
		}, "it goes on")
		require.Equal(t, 15, database.Count(t, "SELECT COUNT(*) FROM postbox_claims WHERE claim_key < ?", []byte("015")),
			"the walk starts where the other one ended")
		require.Empty(t, log.At(watermill.ErrorLogLevel))
	})
}

func TestCleaner_walk_continues_at_the_beginning(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.fill(3*batch, old)
		database.Exec(t, "INSERT INTO postbox_chores (name, progress) VALUES ('claims', ?)", []byte("015"))
		config := cleanerConfig()
		config.Claims = 10 * time.Second // a walk starts every 200 ms
		b.clean(database.DB, "one", config)
		b.Eventually(func() bool { return b.rows()[0] == 0 }, "rows before the cursor are found, too")
	})
}

func TestCleaner_losing_a_lease_unnoticed_is_harmless(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		config := cleanerConfig()
		config.Claims = 10 * time.Second
		stop, log := b.clean(database.DB, "one", config)
		b.Eventually(func() bool { return b.tasksOf("one") == 3 }, "it has the tasks")
		// Somebody else has them now, and has got far.
		database.Exec(t, "UPDATE postbox_chores SET holder = 'two', expires_at = ?, progress = ?",
			time.Now().Add(time.Hour).UnixMicro(), []byte("far"))
		b.fill(3*batch, old)
		stop()
		require.Equal(t, 3, b.tasksOf("two"), "it hands back what is its own, and no more")
		require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_chores WHERE name = 'claims' AND progress = ?", []byte("far")))
		require.Empty(t, log.At(watermill.ErrorLogLevel))
	})
}

func TestCleaner_keeps_rows_without_a_retention(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.fill(batch, old)
		config := cleanerConfig()
		config.Claims, config.DeadLetters = 0, 0
		b.clean(database.DB, "one", config)
		b.Eventually(func() bool { return b.rows() == [3]int{batch, 0, batch} }, "failures go")
		require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_chores"))

		none := cleanup.New(database.DB, b.Statements, "two", cleanup.Config{}, watermill.NopLogger{})
		none.Run(t.Context()) // has nothing to do and says so by returning
	})
}

func TestCleaner_waits_for_the_tables(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newUnmigratedBench(t, database)
		config := cleanerConfig()
		config.Claims = 10 * time.Second // a walk starts every 200 ms
		_, log := b.clean(database.DB, "one", config)
		b.Eventually(func() bool { return len(log.At(watermill.DebugLogLevel)) > 3 }, "it tries again")
		failed := log.At(watermill.ErrorLogLevel)
		require.Len(t, failed, 3, "each task says it once")
		if database.Dialect != postbox.SQLite { // which has no code for it
			require.ErrorContains(t, failed[0].Err, "postbox.Migrate")
		}
		database.Migrate(t)
		b.fill(batch, old)
		b.Eventually(func() bool { return b.left(0) }, "it cleans up")
		b.Eventually(func() bool { return len(log.At(watermill.InfoLogLevel)) == 3 }, "and says so")
	})
}

// It said nothing, and rested for an hour.
func TestCleaner_says_that_the_database_cannot_be_used_and_tries_again(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	b := newBench(t, database)
	b.fill(batch, old)
	db := database.Open(t) // with one connection
	set := func(timeout string) {
		_, err := db.ExecContext(t.Context(), "PRAGMA busy_timeout = "+timeout)
		require.NoError(t, err)
	}
	set("0")
	stop, log := b.clean(db, "one", cleanerConfig())
	b.Eventually(func() bool { return len(log.At(watermill.DebugLogLevel)) > 6 }, "it tries again")
	failed := log.At(watermill.ErrorLogLevel)
	require.Len(t, failed, 3, "each task says it once")
	require.ErrorIs(t, failed[0].Err, dialect.ErrUnfit)
	require.True(t, b.left(batch), "nothing is deleted")

	set("10000")
	b.Eventually(func() bool { return b.left(0) }, "it cleans up")
	stop()
	require.Len(t, log.At(watermill.InfoLogLevel), 3, "and says so")
}

// The index on the time ends the search: the cost of a look does not grow with what is kept.
// Also covers F19.
func TestCleaner_G8_finds_old_rows_by_index(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.Postgres(t))
	b.fill(500, young)
	b.Database.Exec(t, "ANALYZE postbox_failures")
	plan := b.Plan(b.Statements.PurgeFailures(dialect.PurgeParams{Retention: retention.Microseconds(), Limit: batch}))
	require.Contains(t, plan, "postbox_failures_failed_at")
	require.Contains(t, plan, "Index Cond: (", "a condition, not a filter")
	require.NotContains(t, plan, "Filter", plan)
}
