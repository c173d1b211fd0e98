package drain

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// Sizes of the tables on which plans are judged, and of what the statements ask for.
const (
	plannedLanes   = dialect.Lanes
	plannedReady   = 20_000
	plannedWaiting = 4000
	plannedRefs    = 100
	plannedPage    = 20 * plannedLanes
)

// maxBuffers is what a statement may read and write for each message: a descent in an index, the
// row, and the indexes of another table or of the row's next version.
const maxBuffers = 20

// Each state is a way in which statistics come to be wrong, and ends with the same messages.
var plannedStates = []struct {
	name    string
	prepare func(w *plannedTables)
}{
	{"never analyzed", func(w *plannedTables) { w.fill(plannedReady, plannedWaiting) }},
	{"analyzed while empty", func(w *plannedTables) {
		w.exec("ANALYZE postbox_messages, postbox_waiting")
		w.fill(plannedReady, plannedWaiting)
	}},
	{"analyzed while full, vacuumed while empty", func(w *plannedTables) {
		w.fill(plannedReady, plannedWaiting)
		w.exec("ANALYZE postbox_messages, postbox_waiting")
		w.exec("DELETE FROM postbox_messages")
		w.exec("VACUUM (TRUNCATE off) postbox_messages, postbox_waiting")
		w.fill(plannedReady, plannedWaiting)
	}},
	{"vacuumed and analyzed while empty, with many pages", func(w *plannedTables) {
		w.fill(plannedReady, plannedWaiting)
		w.exec("DELETE FROM postbox_messages")
		w.exec("VACUUM (ANALYZE, TRUNCATE off) postbox_messages, postbox_waiting")
		w.fill(plannedReady, plannedWaiting)
	}},
	{"analyzed while small", func(w *plannedTables) {
		w.fill(20, 4)
		w.exec("ANALYZE postbox_messages, postbox_waiting")
		w.fill(plannedReady, plannedWaiting)
	}},
	{"analyzed while another spool was full", func(w *plannedTables) {
		w.fillSpool(w.spool+1, 1, plannedReady, 0)
		w.exec("ANALYZE postbox_messages, postbox_waiting")
		w.fill(plannedReady, plannedWaiting)
	}},
	{"analyzed while full", func(w *plannedTables) {
		w.fill(plannedReady, plannedWaiting)
		w.exec("ANALYZE postbox_messages, postbox_waiting")
	}},
}

// The planner took statistics of an empty table for the truth, and for each message read a lane, or
// all of them: 1,000 messages were removed in seconds. Or it took those of another spool for ours,
// and compiled each read, for 90 ms.
func TestPlans_need_no_statistics_on_postgres(t *testing.T) {
	t.Parallel()
	for _, state := range plannedStates {
		t.Run(state.name, func(t *testing.T) {
			t.Parallel()
			w := newPlannedTables(t)
			state.prepare(w)
			for _, s := range w.statements(w.refs("postbox_messages", dialect.StateReady), w.refs("postbox_waiting", dialect.StateRetrying)) {
				for _, mode := range []string{"force_generic_plan", "force_custom_plan"} {
					w.run("SET plan_cache_mode = " + mode)
					w.run("PREPARE p AS " + s.query.Text)
					seen := w.measure("p", s)
					w.run("DEALLOCATE p")
					require.LessOrEqual(t, seen.buffers(), s.most(), "%s, %s", s.name, mode)
					require.Nil(t, seen.JIT, "%s, %s: it is compiled", s.name, mode)
				}
			}
		})
	}
}

// A plan that was made while the table had no page or few read all of it for each lane or message,
// until the table was analyzed.
func TestPlans_hold_while_a_table_grows_on_postgres(t *testing.T) {
	t.Parallel()
	for how, analyze := range map[string]string{
		"": "", ", analyzed": "ANALYZE postbox_messages, postbox_waiting", ", vacuumed": "VACUUM (ANALYZE) postbox_messages, postbox_waiting",
	} {
		for _, before := range []int{0, 1, 7, 14, 20, 200} {
			t.Run(fmt.Sprintf("from %d%s", before, how), func(t *testing.T) {
				t.Parallel()
				w := newPlannedTables(t)
				w.fill(before, before)
				if analyze != "" {
					w.exec(analyze)
				}
				w.run("SET plan_cache_mode = force_generic_plan")
				w.run("SET work_mem = '256MB'")
				nothing := make([]dialect.Ref, plannedRefs)
				waited := make([]dialect.Ref, plannedRefs)
				for i := range waited {
					waited[i].State = dialect.StateRetrying
				}
				for i, s := range w.statements(nothing, waited) {
					w.run(fmt.Sprintf("PREPARE p%d AS %s", i, s.query.Text))
					w.explain("FORMAT JSON", fmt.Sprintf("p%d", i), s)
				}
				w.fill(plannedReady, plannedWaiting)
				for i, s := range w.statements(w.refs("postbox_messages", dialect.StateReady), w.refs("postbox_waiting", dialect.StateRetrying)) {
					require.LessOrEqual(t, w.measure(fmt.Sprintf("p%d", i), s).buffers(), s.most(), s.name)
				}
			})
		}
	}
}

// What another transaction changed while the removal waited for it is not removed.
func TestRemove_spares_a_message_that_changed_meanwhile_on_postgres(t *testing.T) {
	t.Parallel()
	w := newPlannedTables(t)
	w.fill(0, 2)
	refs := w.refs("postbox_waiting", dialect.StateRetrying)[:1]
	tx, err := w.db.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	var other int
	require.NoError(t, tx.QueryRowContext(t.Context(), "SELECT pg_backend_pid()").Scan(&other))
	_, err = tx.ExecContext(t.Context(), "UPDATE postbox_waiting SET state = 1 WHERE id = $1", refs[0].ID)
	require.NoError(t, err)

	removed := make(chan error, 1)
	query := w.own.Statements.Remove(w.spool, refs)
	go func() {
		n, err := spool.Affected(spool.NewPrepared(w.db.DB).Exec(context.WithoutCancel(t.Context()), w.db.DB, query))
		if err == nil && n != 0 {
			err = fmt.Errorf("%d removed", n)
		}
		removed <- err
	}()
	require.Eventually(t, func() bool {
		return w.db.Count(t, "SELECT COUNT(*) FROM pg_stat_activity WHERE ? = ANY(pg_blocking_pids(pid))", other) > 0
	}, time.Minute, time.Millisecond)
	require.NoError(t, tx.Commit())
	require.NoError(t, <-removed)
	require.Equal(t, 1, w.db.Count(t, "SELECT COUNT(*) FROM postbox_waiting WHERE id = ?", refs[0].ID))
}

// Messages that wait have a table of their own, in which another message may stand at the same
// place.
func TestRemove_spares_a_message_at_the_same_place_of_another_table_on_postgres(t *testing.T) {
	t.Parallel()
	w := newPlannedTables(t)
	w.fill(1, 1)
	query := w.own.Statements.Remove(w.spool, w.refs("postbox_waiting", dialect.StateRetrying))
	_, err := w.db.DB.ExecContext(t.Context(), query.Text, query.Args...)
	require.NoError(t, err)
	require.Equal(t, 1, w.db.Count(t, "SELECT COUNT(*) FROM ONLY postbox_messages"))
	require.Zero(t, w.db.Count(t, "SELECT COUNT(*) FROM postbox_waiting"))
}

// plannedTables are tables whose statistics change when a test says so.
type plannedTables struct {
	t     *testing.T
	db    *testdb.Database
	own   *spool.Spool
	spool int64
	seen  *dialect.Seen // this server
	conn  *sql.Conn     // plans are kept with their connection
}

func newPlannedTables(t *testing.T) *plannedTables {
	t.Helper()
	database := testdb.Postgres(t)
	w := &plannedTables{t: t, db: database, own: newOutbox(t, database)}
	var err error
	w.spool, err = w.own.Open(t.Context(), database.DB)
	require.NoError(t, err)
	for _, table := range []string{"postbox_messages", "postbox_waiting"} {
		w.exec("ALTER TABLE " + table + " SET (autovacuum_enabled = false)")
	}
	lanes := w.own.Statements.FillLanes(w.spool)
	w.exec(lanes.Text, lanes.Args...)
	w.exec("UPDATE postbox_lanes SET token = lane + 1")
	var server string
	require.NoError(t, database.DB.QueryRowContext(t.Context(), "SELECT "+w.own.Statements.ServerIn).Scan(&server))
	w.seen = &dialect.Seen{Servers: []string{strings.Trim(server, "|")}}
	w.conn, err = database.DB.Conn(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = w.conn.Close() })
	return w
}

func (w *plannedTables) exec(query string, args ...any) {
	w.t.Helper()
	w.db.Exec(w.t, query, args...)
}

// run executes a statement on the connection that keeps the plans.
func (w *plannedTables) run(query string) {
	w.t.Helper()
	_, err := w.conn.ExecContext(w.t.Context(), query)
	require.NoError(w.t, err, query)
}

func (w *plannedTables) fill(ready, waiting int) {
	w.t.Helper()
	w.fillSpool(w.spool, plannedLanes, ready, waiting)
}

func (w *plannedTables) fillSpool(spool int64, lanes, ready, waiting int) {
	w.t.Helper()
	const into = ` (spool, lane, state, key_hash, available_at, created_at, starts, topic, message_id, payload, metadata)
		SELECT ?, i % ?, `
	const from = `, i, i, i, 1, 'orders', '0123456789abcdef', '0123456789abcdef', '{}' FROM generate_series(1, ?::integer) i`
	w.exec("INSERT INTO postbox_messages"+into+"0"+from, spool, lanes, ready)
	w.exec("INSERT INTO postbox_waiting"+into+"1 + i % 2"+from, spool, lanes, waiting)
}

// refs names some messages of a table, of all lanes.
func (w *plannedTables) refs(table string, state int) []dialect.Ref {
	w.t.Helper()
	query := "SELECT lane, lane + 1, id, created_at FROM ONLY " + table + " WHERE spool = $1 AND state = $2 ORDER BY md5(id::text) LIMIT $3" //nolint:gosec // a table of this test
	rows, err := w.db.DB.QueryContext(w.t.Context(), query, w.spool, state, plannedRefs)
	require.NoError(w.t, err)
	defer func() { _ = rows.Close() }()
	var refs []dialect.Ref
	for rows.Next() {
		r := dialect.Ref{State: state}
		require.NoError(w.t, rows.Scan(&r.Lane, &r.Token, &r.ID, &r.CreatedAt))
		refs = append(refs, r)
	}
	require.NoError(w.t, rows.Err())
	return refs
}

// planned is a statement with what it finds.
type planned struct {
	name    string
	query   dialect.Query
	rows    int
	changes bool // it changes or deletes them
	buffers int  // that it may read and write; 0 for maxBuffers a message
}

// maxOfOne is for a statement of one message, which looks in both tables and may write to all
// indexes of another one. The whole table has more pages.
const maxOfOne = 300

// maxOfFailed is for each of many failed messages, which are written to the indexes of two other
// tables.
const maxOfFailed = 60

func (s planned) most() int { return cmp.Or(s.buffers, maxBuffers*s.rows) }

func (w *plannedTables) statements(ready, retrying []dialect.Ref) []planned {
	mixed := append(append([]dialect.Ref{}, ready[:plannedRefs/2]...), retrying[:plannedRefs/2]...)
	// A transaction of another test may keep VACUUM from clearing away what is before the first
	// one.
	first := int64(w.db.Count(w.t, "SELECT COALESCE(MIN(id), 1) FROM ONLY postbox_messages WHERE spool = ?", w.spool))
	read := asRead(mixed)
	fetch := func(change func(p *dialect.FetchParams)) dialect.Query {
		p := dialect.FetchParams{Spool: w.spool, Inline: InlineBytes, Known: map[int][]dialect.Known{0: {{ID: 1}}}}
		for lane := range plannedLanes {
			p.Cursors = append(p.Cursors, dialect.Cursor{Lane: lane, After: first - 1})
		}
		change(&p)
		return w.own.Statements.Fetch(p)
	}
	sweep := dialect.SweepParams{Spool: w.spool}
	for lane := range plannedLanes {
		sweep.Ranges = append(sweep.Ranges, dialect.Range{Lane: lane, After: first - 1, UpTo: 1 << 40})
	}
	s := w.own.Statements
	return append(w.unique(), []planned{
		{"remove", s.Remove(w.spool, ready), plannedRefs, true, 0},
		{"remove one", s.Remove(w.spool, ready[:1]), 1, true, 0},
		{"remove what waited", s.Remove(w.spool, mixed), plannedRefs, true, 0},
		{"keep", s.Keep(w.spool, ready), plannedRefs, false, 0},
		{"keep what waited", s.Keep(w.spool, mixed), plannedRefs, false, 0},
		{"lock", s.Lock(w.spool, mixed), plannedRefs, false, 0},
		{"find", s.Find(w.spool, mixed), plannedRefs, false, 0},
		{"lock as read", s.LockAsRead(w.spool, read), plannedRefs, false, 0},
		{"standing as read", s.StandingAsRead(w.spool, read), plannedRefs, false, 0},
		{"count starts", s.CountStarts(w.spool, read), plannedRefs, true, 0},
		{"fetch ready", fetch(func(p *dialect.FetchParams) { p.PerLane = plannedPage / plannedLanes }), plannedPage, false, 0},
		{"fetch ready, beside a paused key", fetch(func(p *dialect.FetchParams) {
			p.PerLane, p.PausedKeys, p.Excluded = plannedPage/plannedLanes, true, []string{"another"}
		}), plannedPage, false, 0},
		{"fetch ready, beside a held key", fetch(func(p *dialect.FetchParams) {
			p.PerLane, p.Held = plannedPage/plannedLanes, []int64{1}
		}), plannedPage, false, 0},
		{"fetch due, beside a held key", fetch(func(p *dialect.FetchParams) { p.Due, p.Held = plannedPage, []int64{1} }), plannedPage, false, 0},
		{"fetch due", fetch(func(p *dialect.FetchParams) { p.Due = plannedPage }), plannedPage, false, 0},
		{"fetch due, beside a paused key", fetch(func(p *dialect.FetchParams) {
			p.Due, p.PausedKeys, p.Excluded = plannedPage, true, []string{"another"}
		}), plannedPage, false, 0},
		{"sweep", s.Sweep(sweep), plannedLanes, false, 0},
		{"remove, on this server", s.RemoveWhere(w.spool, ready, w.seen), plannedRefs, true, 0},
		{"remove what waited, on this server", s.RemoveWhere(w.spool, mixed, w.seen), plannedRefs, true, 0},
		{"settle failed", s.SettleFailed(w.spool, "one", w.failed(mixed)).Together, 1, false, maxOfFailed * plannedRefs},
		{"settle one failed", s.SettleFailed(w.spool, "one", w.failed(ready[:1])).Together, 1, false, 5 * maxOfOne}, // a plan of a few rows may look at more of them
		{"count start", s.CountStarts(w.spool, []dialect.AsRead{{Ref: ready[0], MostStarts: 9}}), 1, true, maxOfOne},
		{"load payload", s.LoadPayload(w.spool, ready[0]), 1, false, maxOfOne},
		{"take back starts", s.TakeBackStarts(w.spool, mixed), plannedRefs, true, 3 * maxBuffers * plannedRefs},
	}...)
}

// asRead has conditions that hold for each message in the tables.
func asRead(refs []dialect.Ref) []dialect.AsRead {
	read := make([]dialect.AsRead, len(refs))
	for i, r := range refs {
		read[i] = dialect.AsRead{Ref: r, LeastStarts: 1, MostStarts: 1}
	}
	return read
}

// failed is what becomes of such messages: every other one is dead.
func (w *plannedTables) failed(refs []dialect.Ref) []dialect.Failed {
	failed := make([]dialect.Failed, len(refs))
	for i, m := range asRead(refs) {
		failed[i] = dialect.Failed{AsRead: m, AddAttempts: 1, TakeBackStarts: 1, Dead: i%2 > 0, Noted: true, Attempt: 1, Error: "why"}
	}
	return failed
}

// explained is what EXPLAIN says of a statement that ran.
type explained struct {
	Plan struct {
		Hit  int `json:"Shared Hit Blocks"`
		Read int `json:"Shared Read Blocks"`
		plan
	}
	JIT any
}

func (e explained) buffers() int { return e.Plan.Hit + e.Plan.Read }

// measure executes a statement, and once more if it read too much: the session may have read
// catalogs, too, since other tests make tables, which empties its caches.
func (w *plannedTables) measure(name string, s planned) explained {
	if seen := w.execute(name, s); seen.buffers() <= s.most() {
		return seen
	}
	return w.execute(name, s)
}

// execute runs a prepared statement, undoes it, and checks that it found its rows.
func (w *plannedTables) execute(name string, s planned) explained {
	w.t.Helper()
	w.run("BEGIN")
	defer w.run("ROLLBACK")
	ran := w.explain("ANALYZE, BUFFERS, FORMAT JSON", name, s)
	found := ran.Plan.Rows
	if found == 0 { // a statement that changes rows returns none
		for _, child := range ran.Plan.Plans {
			if child.Parent == "Outer" || child.Parent == "Member" { // PostgreSQL 13 has a Member for each table
				found += child.Rows
			}
		}
	}
	require.GreaterOrEqual(w.t, int(found), s.rows, s.name)
	return ran
}

func (w *plannedTables) explain(options, name string, s planned) explained {
	w.t.Helper()
	var text string
	require.NoError(w.t, w.conn.QueryRowContext(w.t.Context(), "EXPLAIN ("+options+") EXECUTE "+name+literals(w.t, s.query.Args)).Scan(&text), s.name)
	var plans []explained
	require.NoError(w.t, json.Unmarshal([]byte(text), &plans))
	return plans[0]
}

// literals are arguments as EXECUTE takes them.
func literals(t *testing.T, args []any) string {
	t.Helper()
	texts := make([]string, len(args))
	for i, arg := range args {
		value, err := driver.DefaultParameterConverter.ConvertValue(arg)
		require.NoError(t, err)
		switch value := value.(type) {
		case nil:
			texts[i] = "NULL"
		case []byte:
			texts[i] = fmt.Sprintf(`'\x%x'`, value)
		default:
			texts[i] = "'" + strings.ReplaceAll(fmt.Sprint(value), "'", "''") + "'"
		}
	}
	return "(" + strings.Join(texts, ", ") + ")"
}
