package cleanup_test

import (
	"database/sql"
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

// ancient is beyond every retention of these tests.
const ancient = 10 * time.Hour

// keeps registers a spool for which operators have stored settings, and returns its id.
func (b *bench) keeps(name string, settings spool.Settings) int64 {
	b.T.Helper()
	id, err := spool.New(b.Statements, name).Open(b.T.Context(), b.Database.DB)
	require.NoError(b.T, err)
	b.set(name, settings)
	return id
}

// set stores settings, as an operator does.
func (b *bench) set(name string, settings spool.Settings) {
	b.T.Helper()
	enginetest.StoreSettings(b.T, b.Database, name, settings)
}

// age writes dead letters and entries of the history, so many of each age, for a spool or, with
// nil, for none.
func (b *bench) age(of any, n int, ages ...time.Duration) {
	b.T.Helper()
	require.NoError(b.T, spool.InTx(b.T.Context(), b.Database.DB, b.Statements, func(tx *sql.Tx) error {
		for _, age := range ages {
			for range n {
				at := time.Now().Add(-age).UnixMicro()
				_, err := tx.ExecContext(b.T.Context(), b.Database.Bind(`INSERT INTO postbox_dead_letters (origin, subject, spool, consumer,
					topic, message_id, payload, metadata, created_at, died_at, attempts, error)
					VALUES (0, 's', ?, '', 'orders', 'm', 'p', '{}', ?, ?, 1, 'no')`), of, at, at)
				if err != nil || of == nil {
					return err
				}
				b.historyID++
				_, err = tx.ExecContext(b.T.Context(), b.Database.Bind(`INSERT INTO postbox_history (id, spool, topic, message_id, payload,
					metadata, created_at, done_at, attempts) VALUES (?, ?, 'orders', 'm', 'p', '{}', ?, ?, 1)`), b.historyID, of, at, at)
				if err != nil {
					return err
				}
			}
		}
		return nil
	}))
}

// of counts the rows of a spool in a table.
func (b *bench) of(table string, id int64) int {
	b.T.Helper()
	return b.Database.Count(b.T, "SELECT COUNT(*) FROM postbox_"+table+" WHERE spool = ?", id)
}

func retentionConfig() cleanup.Config {
	return cleanup.Config{
		Interval: 10 * time.Millisecond, Lease: time.Minute, Batch: batch, DeadLetters: retention, History: true,
	}
}

// longer is a retention beyond that of the processes, and with it old rows are kept.
const longer = 3 * time.Hour

func TestCleaner_F18_each_spool_has_a_retention_of_its_own(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		const n = batch + 5
		ids := map[string]int64{}
		for name, settings := range map[string]spool.Settings{
			"default": {}, "shorter": {Retention: middle / 2, History: middle / 2}, "longer": {Retention: longer, History: longer},
			"for ever": {Retention: -1, History: -1}, "unreadable": {},
		} {
			ids[name] = b.keeps(name, settings)
			b.age(ids[name], n, young, middle, old, ancient)
		}
		database.Exec(t, "UPDATE postbox_spools SET settings = 'nonsense' WHERE id = ?", ids["unreadable"])
		const gone = 4711
		b.age(gone, n, young, old)
		b.fill(n, young) // of inboxes
		b.fill(n, old)
		_, log := b.clean(database.DB, "one", retentionConfig())
		left := map[string]int{"default": 2 * n, "shorter": n, "longer": 3 * n, "for ever": 4 * n, "unreadable": 4 * n}
		for name, want := range left {
			b.Eventually(func() bool { return b.of("dead_letters", ids[name]) == want }, name)
		}
		b.Eventually(func() bool { return b.of("dead_letters", gone) == n }, "of a spool that is not there any more")
		b.Eventually(func() bool { return b.rows()[2] == 14*n+n+n }, "of inboxes")

		left = map[string]int{"default": 0, "shorter": n, "longer": 3 * n, "for ever": 0, "unreadable": 4 * n}
		for name, want := range left {
			b.Eventually(func() bool { return b.of("history", ids[name]) == want }, "history: "+name)
		}
		b.Eventually(func() bool { return b.of("history", gone) == 0 }, "no setting keeps the history of a spool that is gone")
		for name, id := range ids { // and so it stays
			require.Equal(t, left[name], b.of("history", id))
		}
		require.Equal(t, 4*n, b.of("dead_letters", ids["for ever"]))
		for _, entry := range log.At(watermill.DebugLogLevel) {
			if rows, ok := entry.Fields["rows"].(int); ok {
				require.LessOrEqual(t, rows, batch, "each statement is bounded")
			}
		}
		require.Empty(t, log.At(watermill.ErrorLogLevel))
	})
}

func TestCleaner_F18_operators_override_processes_that_keep_dead_letters(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		kept, shorter := b.keeps("kept", spool.Settings{}), b.keeps("shorter", spool.Settings{Retention: retention})
		b.age(kept, 3, ancient)
		b.age(shorter, 3, ancient, young)
		b.fill(3, ancient)
		config := retentionConfig()
		config.DeadLetters = -1
		b.clean(database.DB, "one", config)
		b.Eventually(func() bool { return b.of("dead_letters", shorter) == 3 }, "what an operator says")
		b.Eventually(func() bool { return b.of("history", shorter) == 0 }, "another task has been round")
		require.Equal(t, 3, b.of("dead_letters", kept))
		require.Equal(t, 9, b.rows()[2])
	})
}

// A backlog of one spool is worked off without pauses, and the others do not wait for it.
func TestCleaner_F18_takes_no_pause_while_a_spool_has_more_old_rows(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		first, second := b.keeps("first", spool.Settings{}), b.keeps("second", spool.Settings{})
		b.age(first, 10*batch, old)
		b.age(second, 1, old)
		b.fill(3*batch, old)
		config := retentionConfig()
		config.Interval, config.Lease = time.Hour, 2*time.Hour
		_, log := b.clean(database.DB, "one", config)
		b.Eventually(func() bool { return b.rows()[2] == 0 && b.of("history", first)+b.of("history", second) == 0 }, "all is gone")
		var steps []int
		for _, entry := range log.At(watermill.DebugLogLevel) {
			if rows, ok := entry.Fields["rows"].(int); ok && entry.Fields["task"] == "history" {
				steps = append(steps, rows)
			}
		}
		require.Equal(t, []int{batch, 1}, steps[:2], "the second has its turn before the backlog of the first is gone")
	})
}

// The drainer tells how long its process keeps what is done: the cleaner may be in another one.
func TestCleaner_F18_history_is_kept_as_long_as_a_drainer_is_configured(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.Append(database.DB, enginetest.Drafts(5, func(int) string { return "key" })...)
		_, stop := b.drain("one", taker{}, retention)
		b.Eventually(func() bool { return b.Pending() == 0 }, "all messages are settled")
		stop()
		require.Equal(t, 5, database.Count(t, "SELECT COUNT(*) FROM postbox_history"))
		database.Exec(t, "UPDATE postbox_history SET done_at = done_at - ? WHERE id % 2 = 0", old.Microseconds())
		young := database.Count(t, "SELECT COUNT(*) FROM postbox_history WHERE id % 2 = 1")

		without, _ := b.drain("two", taker{}, 0) // knows of no history, and changes nothing
		<-without.Ready()
		b.clean(database.Open(t), "cleaner", retentionConfig())
		b.Eventually(func() bool { return database.Count(t, "SELECT COUNT(*) FROM postbox_history") == young }, "the old ones are gone")
		b.set(b.Spool.Name(), spool.Settings{History: -1})
		b.Eventually(func() bool { return database.Count(t, "SELECT COUNT(*) FROM postbox_history") == 0 }, "it is turned off")
	})
}

// What is kept is not read again and again: an index on spool and time ends each search.
// Also covers F18 and F19.
func TestCleaner_G8_finds_expired_rows_of_a_spool_by_index(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		id := b.keeps("a spool", spool.Settings{})
		b.age(id, 1000, young)
		b.age(b.keeps("another", spool.Settings{}), 1000, young)
		for _, table := range []string{"postbox_dead_letters", "postbox_history"} {
			database.Exec(t, map[postbox.Dialect]string{
				postbox.PostgreSQL: "ANALYZE " + table, postbox.MySQL: "ANALYZE TABLE " + table, postbox.SQLite: "ANALYZE " + table,
			}[database.Dialect])
		}
		old := dialect.PurgeParams{Retention: retention.Microseconds(), Limit: batch}
		for name, plan := range map[string]string{
			"letters": b.Plan(b.Statements.PurgeDeadLetters(id, old)), "others": b.Plan(b.Statements.PurgeOthers(old)),
			"history": b.Plan(b.Statements.PurgeHistory(id, old)),
		} {
			want := map[postbox.Dialect][]string{
				postbox.PostgreSQL: {"_at on postbox_", "Index Cond: ((spool "}, postbox.MySQL: {"key=d", "type=range"},
				postbox.SQLite: {"_at (spool=? AND d"},
			}[database.Dialect]
			for _, part := range want {
				require.Contains(t, plan, part, name)
			}
			require.NotContains(t, plan, "Filter", name)
			require.NotContains(t, plan, "type=ALL", name)
		}
		for name, plan := range map[string]string{
			"letters": b.Plan(dialect.Query{Text: b.Statements.NextOfLetters, Args: []any{0}}), "history": b.Plan(dialect.Query{Text: b.Statements.NextOfHistory, Args: []any{0}}),
		} {
			want := map[postbox.Dialect]string{
				postbox.PostgreSQL: "Index Only Scan using postbox_", postbox.MySQL: "Select tables optimized away", postbox.SQLite: "(spool>?)",
			}[database.Dialect]
			require.Contains(t, plan, want, name)
		}
	})
}
