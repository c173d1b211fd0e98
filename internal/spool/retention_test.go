package spool_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// ancient is beyond every retention of these tests.
const ancient = 10 * time.Hour

// keeps registers a spool for which operators have stored settings, and returns its id.
func (b *bench) keeps(name string, settings spool.Settings) int64 {
	b.t.Helper()
	id, err := spool.New(b.statements, name, lanes).Open(b.t.Context(), b.database.DB)
	require.NoError(b.t, err)
	require.NoError(b.t, spool.NewOperator(b.database.DB, b.statements, watermill.NopLogger{}).Set(b.t.Context(), name, settings))
	return id
}

// age writes dead letters and entries of the history, so many of each age, for a spool or, with nil, for none.
func (b *bench) age(of any, n int, ages ...time.Duration) {
	b.t.Helper()
	require.NoError(b.t, spool.InTx(b.t.Context(), b.database.DB, b.statements, func(tx *sql.Tx) error {
		for _, age := range ages {
			for range n {
				at := time.Now().Add(-age).UnixMicro()
				_, err := tx.ExecContext(b.t.Context(), b.database.Bind(`INSERT INTO postbox_dead_letters (origin, subject, spool, consumer,
					topic, message_id, payload, metadata, created_at, died_at, attempts, error)
					VALUES (0, 's', ?, '', 'orders', 'm', 'p', '{}', ?, ?, 1, 'no')`), of, at, at)
				if err != nil || of == nil {
					return err
				}
				b.historyID++
				_, err = tx.ExecContext(b.t.Context(), b.database.Bind(`INSERT INTO postbox_history (id, spool, topic, message_id, payload,
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
	b.t.Helper()
	return b.database.Count(b.t, "SELECT COUNT(*) FROM postbox_"+table+" WHERE spool = ?", id)
}

func retentionConfig() spool.CleanerConfig {
	return spool.CleanerConfig{
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
			b.eventually(func() bool { return b.of("dead_letters", ids[name]) == want }, name)
		}
		b.eventually(func() bool { return b.of("dead_letters", gone) == n }, "of a spool that is not there any more")
		b.eventually(func() bool { return b.rows()[2] == 14*n+n+n }, "of inboxes")

		left = map[string]int{"default": 0, "shorter": n, "longer": 3 * n, "for ever": 0, "unreadable": 4 * n}
		for name, want := range left {
			b.eventually(func() bool { return b.of("history", ids[name]) == want }, "history: "+name)
		}
		b.eventually(func() bool { return b.of("history", gone) == 0 }, "nobody says that it is kept")
		for name, id := range ids { // and so it stays
			require.Equal(t, left[name], b.of("history", id))
		}
		require.Equal(t, 4*n, b.of("dead_letters", ids["for ever"]))
		for _, entry := range log.at(watermill.DebugLogLevel) {
			if rows, ok := entry.Fields["rows"].(int); ok {
				require.LessOrEqual(t, rows, batch, "each statement is bounded")
			}
		}
		require.Empty(t, log.at(watermill.ErrorLogLevel))
	})
}

func TestCleaner_F18_operators_are_obeyed_where_processes_keep_dead_letters(t *testing.T) {
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
		b.eventually(func() bool { return b.of("dead_letters", shorter) == 3 }, "what an operator says")
		b.eventually(func() bool { return b.of("history", shorter) == 0 }, "another chore has been round")
		require.Equal(t, 3, b.of("dead_letters", kept))
		require.Equal(t, 9, b.rows()[2])
	})
}

// A backlog of one spool is worked off without pauses, and the others do not wait for it.
func TestCleaner_F18_goes_round_without_a_pause_while_there_is_more(t *testing.T) {
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
		b.eventually(func() bool { return b.rows()[2] == 0 && b.of("history", first)+b.of("history", second) == 0 }, "all is gone")
		var steps []int
		for _, entry := range log.at(watermill.DebugLogLevel) {
			if rows, ok := entry.Fields["rows"].(int); ok && entry.Fields["chore"] == "history" {
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
		c := config("one")
		c.History = retention
		b.append(database.DB, drafts(5, func(int) string { return "key" })...)
		r := b.start(database.DB, &recorder{}, c)
		b.eventually(func() bool { return b.pending() == 0 }, "all messages are settled")
		r.stop(t)
		require.Equal(t, 5, database.Count(t, "SELECT COUNT(*) FROM postbox_history"))
		database.Exec(t, "UPDATE postbox_history SET done_at = done_at - ? WHERE id % 2 = 0", old.Microseconds())
		young := database.Count(t, "SELECT COUNT(*) FROM postbox_history WHERE id % 2 = 1")

		without := b.start(database.DB, &recorder{}, config("two")) // knows of no history, and changes nothing
		<-without.Ready()
		b.clean(database.Open(t), "cleaner", retentionConfig())
		b.eventually(func() bool { return database.Count(t, "SELECT COUNT(*) FROM postbox_history") == young }, "the old ones are gone")
		operator := spool.NewOperator(database.DB, b.statements, watermill.NopLogger{})
		require.NoError(t, operator.Set(t.Context(), b.spool.Name(), spool.Settings{History: -1}))
		b.eventually(func() bool { return database.Count(t, "SELECT COUNT(*) FROM postbox_history") == 0 }, "it is turned off")
	})
}

// plan returns how a database finds what a statement is about.
func (b *bench) plan(text string, args ...any) string {
	b.t.Helper()
	explain := map[postbox.Dialect]string{
		postbox.PostgreSQL: "EXPLAIN ", postbox.MySQL: "EXPLAIN ", postbox.SQLite: "EXPLAIN QUERY PLAN ",
	}[b.database.Dialect]
	rows, err := b.database.DB.QueryContext(b.t.Context(), explain+text, args...)
	require.NoError(b.t, err)
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	require.NoError(b.t, err)
	var plan strings.Builder
	for rows.Next() {
		fields := make([]any, len(columns))
		for i := range fields {
			fields[i] = new(sql.NullString)
		}
		require.NoError(b.t, rows.Scan(fields...))
		for i, name := range columns {
			fmt.Fprintf(&plan, "%s=%s ", name, fields[i].(*sql.NullString).String)
		}
		plan.WriteString("\n")
	}
	require.NoError(b.t, rows.Err())
	return plan.String()
}

// What is kept is not read again and again: an index on spool and time ends each search.
func TestCleaner_G8_F18_F19_finds_what_spools_keep_no_longer_by_index(t *testing.T) {
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
		keep := retention.Microseconds()
		for name, plan := range map[string]string{
			"letters": b.plan(b.statements.PurgeDeadLetters, id, keep, batch), "others": b.plan(b.statements.PurgeOthers, keep, batch),
			"history": b.plan(b.statements.PurgeHistory, id, keep, batch),
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
			"letters": b.plan(b.statements.NextOfLetters, 0), "history": b.plan(b.statements.NextOfHistory, 0),
		} {
			want := map[postbox.Dialect]string{
				postbox.PostgreSQL: "Index Only Scan using postbox_", postbox.MySQL: "Select tables optimized away", postbox.SQLite: "(spool>?)",
			}[database.Dialect]
			require.Contains(t, plan, want, name)
		}
	})
}
