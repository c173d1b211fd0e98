package drain

import (
	"database/sql"
	"encoding/json"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/enginetest"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// What the server knows of a table that fills and empties is old, here that no message has a key.
// It concluded that each may as well be compared with all others, and so 40,000 took 300 µs each.
func TestFetch_reads_by_its_indexes_on_mysql(t *testing.T) {
	t.Parallel()
	database := testdb.MySQL(t)
	own := newOutbox(t, database)
	fill := func(key string) {
		drafts := make([]spool.Draft, 2000)
		for i := range drafts {
			drafts[i] = spool.Draft{Topic: "orders", Key: key}
		}
		require.NoError(t, own.Append(t.Context(), database.DB, spool.Run, drafts))
	}
	database.Exec(t, "ALTER TABLE postbox_messages STATS_AUTO_RECALC = 0") // it would be renewed at any moment
	fill("")
	database.Exec(t, "ANALYZE TABLE postbox_messages")
	database.Exec(t, "DELETE FROM postbox_messages")
	fill(keysOf(0, 1)[0])
	id, err := own.Open(t.Context(), database.DB)
	require.NoError(t, err)

	const page = 100
	lanes := []dialect.Cursor{{Lane: 0, After: 1}, {Lane: 1, After: 1}, {Lane: 2, After: 1}}
	for name, params := range map[string]dialect.FetchParams{
		"each lane":   {Spool: id, Cursors: lanes[:1], PerLane: page, Due: page},
		"up to an id": {Spool: id, Cursors: lanes, UpTo: 1 + page, Due: page},
	} {
		by := "m by ready"
		if params.UpTo > 0 {
			by = "m by PRIMARY"
		}
		query := own.Statements.Fetch(params)
		require.ElementsMatch(t, []string{by, "b by retrying", "m by due", "b by retrying", "m by due", "b by retrying"}, usedIndexes(t, database.DB, query), name)
		require.LessOrEqual(t, enginetest.Reads(t, database, query), 10*page, "%s: it reads no more than a page, however much waits", name)
	}
	database.Exec(t, "UPDATE postbox_messages SET state = 1 + id % 2, available_at = id, key_hash = NULL")
	query := own.Statements.Fetch(dialect.FetchParams{Spool: id, Cursors: lanes, UpTo: 1 + page, Due: page})
	require.LessOrEqual(t, enginetest.Reads(t, database, query), 10*page, "it reads no more than a page of those that are due, however many are")
}

// usedIndexes tells by which index each table of messages is read.
func usedIndexes(t *testing.T, db *sql.DB, query dialect.Query) (used []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "EXPLAIN FORMAT=TRADITIONAL "+query.Text, query.Args...)
	require.NoError(t, err)
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	require.NoError(t, err)
	for rows.Next() {
		var table, key sql.NullString
		values := make([]any, len(columns))
		for i, column := range columns {
			switch column {
			case "table":
				values[i] = &table
			case "key":
				values[i] = &key
			default:
				values[i] = new(any)
			}
		}
		require.NoError(t, rows.Scan(values...))
		if table.String == "m" || table.String == "b" {
			used = append(used, table.String+" by "+key.String)
		}
	}
	require.NoError(t, rows.Err())
	return used
}

// PostgreSQL compiles a statement from an estimated cost on, each time anew: 40 ms for a read that
// takes 5. With statistics of a backlog, a page of the default size must stay below that.
func TestFetch_costs_too_little_for_PostgreSQL_to_compile_it_on_postgres(t *testing.T) {
	t.Parallel()
	const lanes, page, perPage = 32, 2000, 1000
	database := testdb.Postgres(t)
	own := newOutbox(t, database)
	for n := 0; n < 40*perPage; n += perPage {
		drafts := make([]spool.Draft, perPage)
		for i := range drafts {
			drafts[i] = spool.Draft{Topic: "orders", Key: strconv.Itoa(i)}
		}
		require.NoError(t, own.Append(t.Context(), database.DB, spool.Run, drafts))
	}
	database.Exec(t, "UPDATE postbox_messages SET state = 2 WHERE id = (SELECT MIN(id) FROM postbox_messages)")
	database.MoveWaiting(t)
	database.Exec(t, "ANALYZE postbox_messages, postbox_waiting")
	id, err := own.Open(t.Context(), database.DB)
	require.NoError(t, err)

	params := dialect.FetchParams{Spool: id, PerLane: page / lanes, Due: page, Known: map[int][]dialect.Known{0: {{ID: 1}}}}
	for lane := range lanes {
		params.Cursors = append(params.Cursors, dialect.Cursor{Lane: lane})
	}
	query := own.Statements.Fetch(params)
	var text string
	require.NoError(t, database.DB.QueryRowContext(t.Context(), "EXPLAIN (FORMAT JSON) "+query.Text, query.Args...).Scan(&text))
	var plans []struct {
		Plan struct {
			Cost float64 `json:"Total Cost"`
		}
	}
	require.NoError(t, json.Unmarshal([]byte(text), &plans))
	var compiled float64
	require.NoError(t, database.DB.QueryRowContext(t.Context(), "SELECT current_setting('jit_above_cost')::float").Scan(&compiled))
	require.Less(t, plans[0].Plan.Cost, compiled)
}

// The planner took what is due for a third of all that waits, or for nothing where it had no
// statistics: it compiled the statement, or read all that waits, or all that is due and sorted it,
// 30 to 130 ms for each page.
func TestFetch_reads_what_is_due_in_its_order_on_postgres(t *testing.T) {
	t.Parallel()
	const lanes, page, waiting = 32, 2000, 100_000
	database := testdb.Postgres(t)
	own := newOutbox(t, database)
	id, err := own.Open(t.Context(), database.DB)
	require.NoError(t, err)
	params := dialect.FetchParams{Spool: id, PerLane: page / lanes, Due: page}
	for lane := range lanes {
		params.Cursors = append(params.Cursors, dialect.Cursor{Lane: lane})
	}
	query := own.Statements.Fetch(params)
	check := func(state string) {
		tx, err := database.DB.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		counted := func() (passed, read int) { // the whole table, and by an index
			require.NoError(t, tx.QueryRowContext(t.Context(), "SELECT COALESCE(SUM(seq_tup_read), 0), COALESCE(SUM(idx_tup_fetch), 0) FROM pg_stat_xact_user_tables WHERE relid = 'postbox_waiting'::regclass").Scan(&passed, &read))
			return passed, read
		}
		passedBefore, readBefore := counted()
		var text string
		require.NoError(t, tx.QueryRowContext(t.Context(), "EXPLAIN (ANALYZE, FORMAT JSON) "+query.Text, query.Args...).Scan(&text))
		var plans []struct{ JIT any }
		require.NoError(t, json.Unmarshal([]byte(text), &plans))
		require.Nil(t, plans[0].JIT, "%s: it is compiled", state)
		passed, read := counted()
		require.Equal(t, passedBefore, passed, state)
		require.LessOrEqual(t, read-readBefore, page+1, state) // one more to see whether any is due
	}
	database.Exec(t, `INSERT INTO postbox_waiting (spool, lane, state, key_hash, available_at, created_at, topic, message_id, payload, metadata)
		SELECT ?, i % ?, 1, i, 4000000000000000 + i, 0, 'orders', '', '', '{}' FROM generate_series(1, ?) i`, id, lanes, waiting)
	check("nothing due, no statistics")
	database.Exec(t, "ANALYZE postbox_messages, postbox_waiting")
	check("nothing due")
	database.Exec(t, "UPDATE postbox_waiting SET available_at = id")
	check("all due, old statistics")
	database.Exec(t, "ANALYZE postbox_messages, postbox_waiting")
	check("all due")
}

// The index of what is due may be larger than the primary key, after many retries for example. If
// the statistics are from a time with few messages, the planner prefers the primary key. A read
// would then go through all messages that wait.
func TestFetch_G8_passes_over_nothing_that_is_not_due_on_postgres(t *testing.T) {
	t.Parallel()
	const lanes, waiting = 32, 4000
	database := testdb.Postgres(t)
	own := newOutbox(t, database)
	id, err := own.Open(t.Context(), database.DB)
	require.NoError(t, err)
	database.Exec(t, "ALTER TABLE postbox_waiting SET (autovacuum_enabled = false)")
	const wait = `INSERT INTO postbox_waiting (spool, lane, state, available_at, created_at, topic, message_id, payload, metadata)
		SELECT ?, i % ?, 1, 4000000000000000 + i, 0, 'orders', '', '', '{}' FROM generate_series(1, ?) i`
	for other := range 8 {
		database.Exec(t, wait, id+int64(other)+1, lanes, 1)
	}
	for range 1000 {
		database.Exec(t, "UPDATE postbox_waiting SET available_at = available_at + 1000")
	}
	database.Exec(t, "VACUUM (ANALYZE) postbox_waiting")
	database.Exec(t, wait, id, lanes, waiting)

	params := dialect.FetchParams{Spool: id, PerLane: 1, Due: lanes}
	for lane := range lanes {
		params.Cursors = append(params.Cursors, dialect.Cursor{Lane: lane})
	}
	query := own.Statements.Fetch(params)
	conn, err := database.DB.Conn(t.Context())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = conn.ExecContext(t.Context(), "SET plan_cache_mode = force_generic_plan")
	require.NoError(t, err)
	fetch, err := conn.PrepareContext(t.Context(), query.Text)
	require.NoError(t, err)
	defer func() { _ = fetch.Close() }()
	_, err = fetch.ExecContext(t.Context(), query.Args...) // it is planned, for which rows are read, too
	require.NoError(t, err)
	_, err = conn.ExecContext(t.Context(), "BEGIN")
	require.NoError(t, err)
	read := func() (n int) {
		require.NoError(t, conn.QueryRowContext(t.Context(), "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relid = 'postbox_waiting'::regclass").Scan(&n))
		return n
	}
	before := read()
	_, err = fetch.ExecContext(t.Context(), query.Args...)
	require.NoError(t, err)
	require.Equal(t, before, read())
	_, err = conn.ExecContext(t.Context(), "ROLLBACK")
	require.NoError(t, err)
}

// plan is a node of a plan, as far as it matters here.
type plan struct {
	Rows   float64 `json:"Actual Rows"`
	Parent string  `json:"Parent Relationship"`
	Plans  []plan
}
