package counts

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin/internal/operatorsql"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/enginetest"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// Every statement that counts reads no more than it may, although the tables have many more rows,
// and whatever the planner knows about them.
func TestStatements_G8_read_a_bounded_number_of_rows(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		newBench(t, database).readFew(4)
	})
}

// The planner takes what VACUUM found for the truth. Of an empty table with one page it preferred
// the index of retrying messages by key to the primary key, and read all of them for each lane.
func TestStatements_G8_need_no_statistics_on_postgres(t *testing.T) {
	t.Parallel()
	for _, emptied := range []string{"VACUUM (TRUNCATE off)", "VACUUM (TRUNCATE on)", "VACUUM (ANALYZE, TRUNCATE off)", "VACUUM FULL", "TRUNCATE"} {
		t.Run(emptied, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, testdb.Postgres(t))
			for _, table := range []string{"postbox_messages", "postbox_waiting", "postbox_dead_letters", "postbox_history"} {
				b.exec("ALTER TABLE " + table + " SET (autovacuum_enabled = false)")
				b.exec(emptied + " " + table)
			}
			b.readFew(40)
		})
	}
}

// With statistics of a few messages of other spools, the planner read all that wait for each lane.
func TestAges_G8_need_no_statistics_on_postgres(t *testing.T) {
	t.Parallel()
	const waiting = 4000
	b := newBench(t, testdb.Postgres(t))
	b.exec("ALTER TABLE postbox_waiting SET (autovacuum_enabled = false)")
	const wait = `INSERT INTO postbox_waiting (spool, lane, state, available_at, created_at, topic, message_id, payload, metadata)
		SELECT ?, 0, 1, 4000000000000000 + i, 0, 'orders', '', '', '{}' FROM generate_series(1, ?) i`
	for other := range int64(8) {
		b.exec(wait, b.id+other+1, 1)
	}
	b.exec("VACUUM (ANALYZE) postbox_waiting")
	b.exec(wait, b.id, waiting)
	err := Planned(t.Context(), b.Database.DB, b.Statements.Kind, inOrder, func(from spool.Querier) error {
		read := func() (n int) {
			const fetched = "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relid = 'postbox_waiting'::regclass"
			require.NoError(t, spool.Each(t.Context(), from, dialect.Query{Text: fetched}, func(scan spool.Scan) error { return scan(&n) }))
			return n
		}
		before := read()
		err := spool.Each(t.Context(), from, dialect.Query{Text: b.Statements.Ages}, func(scan spool.Scan) error {
			return scan(append([]any{new(int64), new(sql.NullString)}, new(dialect.Ages).Columns()...)...)
		})
		require.Less(t, read()-before, 300)
		return err
	})
	require.NoError(t, err)
}

// readFew fills the tables, and runs each statement before and after they are analyzed. One of so
// many messages is to be retried.
func (b *bench) readFew(retrying int) {
	b.T.Helper()
	const rows = 2000
	b.ready(2 * rows)
	b.exec("UPDATE postbox_messages SET state = 1 WHERE id % 4 = 1")
	b.exec("UPDATE postbox_messages SET state = 2, attempts = 3, available_at = available_at + 1 WHERE id % ? = 3", retrying)
	b.exec("UPDATE postbox_messages SET available_at = available_at + ? WHERE id % ? = 3", int64(dialect.ParkDelay), 2*retrying)
	b.Database.MoveWaiting(b.T)
	b.exec(`INSERT INTO postbox_dead_letters (origin, subject, error, spool, consumer, topic, message_id, payload, metadata, created_at, died_at, attempts)
		SELECT CASE WHEN id % 2 = 0 THEN 0 ELSE 1 END, message_id, 'no', CASE WHEN id % 2 = 0 THEN spool END, 'billing', topic, message_id, payload, metadata, created_at, created_at + id, 3 FROM postbox_messages`)
	b.exec(`INSERT INTO postbox_history (id, spool, topic, message_id, payload, metadata, created_at, done_at, attempts)
		SELECT id, spool, topic, message_id, payload, metadata, created_at, created_at + id, 1 FROM postbox_messages`)

	numbers := operatorsql.New(b.Statements).CountUpTo([]int64{b.id}, limit)
	few := append(operatorsql.New(b.Statements).CountFew([]int64{b.id}, limit), numbers...)
	type bounded struct {
		query dialect.Query
		most  int // rows or index entries
	}
	tests := map[string]bounded{
		"whether a spool has few": {few[0], 7 * limit},
		"numbers of a spool":      {numbers[0], 7 * limit},
		"dead letters of inboxes": {dialect.Query{Text: operatorsql.New(b.Statements).InboxLetters, Args: []any{limit}}, limit},
		"ages":                    {dialect.Query{Text: b.Statements.Ages}, 3*enginetest.Lanes + 20},
		"which spools are empty":  {dialect.Query{Text: b.Statements.Fullness}, 20},
	}
	if b.Database.Dialect == postbox.PostgreSQL {
		tests["stuck keys"] = bounded{operatorsql.New(b.Statements).StuckHeads(b.id, limit), enginetest.Lanes * limit}
		tests["number of stuck keys"] = bounded{operatorsql.New(b.Statements).CountStuck([]int64{b.id}, limit)[0], 2 * limit}
	}
	for name, test := range tests {
		for _, analyzed := range []bool{false, true} {
			if analyzed {
				b.analyze()
			}
			// Databases count a few steps more, such as the one behind the last row of a range.
			require.LessOrEqual(b.T, b.Reads(test.query), test.most+test.most/2+20, name)
		}
	}
}

func (b *bench) analyze() {
	b.T.Helper()
	for _, table := range []string{"messages", "dead_letters", "history"} {
		b.exec(map[postbox.Dialect]string{
			postbox.PostgreSQL: "ANALYZE postbox_", postbox.MySQL: "ANALYZE TABLE postbox_", postbox.SQLite: "ANALYZE postbox_",
		}[b.Database.Dialect] + table)
	}
	if b.Database.Dialect == postbox.PostgreSQL {
		b.exec("ANALYZE postbox_waiting")
	}
}
