package sources

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

const (
	planRows = 50_000
	planPage = 100
)

// planNode is a node of PostgreSQL's EXPLAIN (ANALYZE, FORMAT JSON).
type planNode struct {
	Type    string     `json:"Node Type"`
	Index   string     `json:"Index Name"`
	Rows    float64    `json:"Actual Rows"`
	Loops   float64    `json:"Actual Loops"`
	Removed float64    `json:"Rows Removed by Filter"`
	Hit     int        `json:"Shared Hit Blocks"`
	Read    int        `json:"Shared Read Blocks"`
	Plans   []planNode `json:"Plans"`
}

func (n planNode) each(visit func(planNode)) {
	visit(n)
	for _, child := range n.Plans {
		child.each(visit)
	}
}

// L9: watermill-sql sorts the whole backlog for each batch of 100; a million rows cost 306 to 475
// ms. Ours reads what it returns, wherever the position stands and whatever the planner knows: on a
// table of 50,000 rows no node of a plan has more than a few pages of rows.
func TestTransfer_F19_a_page_costs_the_same_on_any_backlog(t *testing.T) {
	t.Parallel()
	w := newOldWorld(t, testdb.Postgres(t)).initialize()
	w.database.Exec(t, fmt.Sprintf(`INSERT INTO %s (uuid, payload, metadata, transaction_id)
		SELECT n, '{}', '{}', (1000 + n / 3)::text::xid8 FROM generate_series(1, %d) AS n`, w.schemaTable(), planRows))
	tables := statementsFor(w.statements, w.schemaTable(), w.offsetsTable())
	require.NoError(t, w.transfer(w.database.DB, nil).register(t.Context()))

	for _, analyzed := range []bool{false, true} {
		if analyzed {
			w.database.Exec(t, "ANALYZE "+w.schemaTable())
		}
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			for name, after := range map[string]int64{"start": 0, "middle": 9_000, "end": 17_600, "beyond": 99_999_999} {
				what := fmt.Sprintf("%s, %s, analyzed %t", name, mode, analyzed)
				late := []rowID{{Transaction: 1100, Offset: -1}, {Transaction: 2200, Offset: -1}, {Transaction: 5000, Offset: 12_002}}
				for _, within := range []position{
					{After: rowID{Transaction: after, Offset: -1}},
					{After: rowID{Transaction: after, Offset: -1}, Late: late},
				} {
					page := tables.Page(within, planPage)
					w.requireCheap(page, mode, what+", page")
					w.requireCheap(tables.Peek(w.schemaTable(), within), mode, what+", peek")
				}
			}
			var rows []rowID
			for n := int64(20_001); n <= 20_000+planPage; n++ {
				rows = append(rows, rowID{Transaction: 1000 + n/3, Offset: n})
			}
			if analyzed { // without statistics any list may be longer than the table
				w.requireCheap(tables.Remove(rows), mode, mode+", remove")
			}
		}
	}
}

// While a transaction is open PostgreSQL keeps all that was deleted after it began, index entries
// too. Reading from there on would cost more with each page; reading from the last page on would
// miss what commits late. Also covers finding L9.
func TestTransfer_F4_an_open_transaction_makes_no_page_more_expensive(t *testing.T) {
	t.Parallel()
	w := newOldWorld(t, testdb.Postgres(t))
	w.source.PageSize = planPage
	w.initialize()
	late := w.begin(w.database.DB)
	w.publish(late, "late")
	write := fmt.Sprintf(`INSERT INTO %s (uuid, payload, metadata, transaction_id)
		SELECT n, '{}', '{}', pg_current_xact_id() FROM generate_series(1, %d) AS n`, w.schemaTable(), 5*planPage)
	fill := func() { // so much that reading it all is no choice, whatever the planner knows
		for range 20 {
			w.database.Exec(t, write)
		}
	}
	fill()
	transfer := w.transfer(w.database.DB, nil)
	for w.left() > 0 {
		require.Equal(t, planPage, w.step(transfer))
	}
	fill()
	tables := statementsFor(w.statements, w.schemaTable(), w.offsetsTable())
	require.NotEmpty(t, transfer.position.Late)
	w.requireCheap(tables.Page(transfer.position, planPage), "auto", "page")
	w.database.Exec(t, "ANALYZE "+w.schemaTable()) // autovacuum may have done so before, or not
	w.requireCheap(tables.Page(transfer.position, planPage), "auto", "page, with statistics")
	require.NoError(t, late.Commit())
	require.Equal(t, planPage, w.step(transfer))
	require.Equal(t, "late", w.movedIDs()[100*planPage])
}

// requireCheap explains a query as a prepared statement, and rolls back what it does.
func (w *oldWorld) requireCheap(query dialect.Query, mode, what string) {
	w.t.Helper()
	tx := w.begin(w.database.DB)
	defer func() { require.NoError(w.t, tx.Rollback()) }()
	for _, statement := range []string{"SET LOCAL plan_cache_mode = " + mode, "DEALLOCATE ALL", "PREPARE explained AS " + query.Text} {
		_, err := tx.ExecContext(context.Background(), statement)
		require.NoError(w.t, err, what)
	}
	var text string
	explain := "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE explained (" + literals(w.t, query.Args) + ")"
	require.NoError(w.t, tx.QueryRowContext(context.Background(), explain).Scan(&text), what)
	var plans []struct {
		Plan planNode `json:"Plan"`
	}
	require.NoError(w.t, json.Unmarshal([]byte(text), &plans))
	byIndex := false
	plans[0].Plan.each(func(node planNode) {
		byIndex = byIndex || node.Index == "watermill_events_pkey"
		require.LessOrEqual(w.t, node.Rows*node.Loops, float64(3*planPage), "%s: %s", what, text)
		require.Zero(w.t, node.Removed, "%s: %s", what, text)
		if node.Type == "Seq Scan" {
			require.LessOrEqual(w.t, node.Rows, 1.0, "%s: only of the table of sources: %s", what, text)
		}
	})
	require.True(w.t, byIndex, "%s: %s", what, text)
	require.Less(w.t, plans[0].Plan.Hit+plans[0].Plan.Read, 12*planPage, "%s: blocks: %s", what, text)
}

// literals writes arguments as SQL.
func literals(t *testing.T, args []any) string {
	t.Helper()
	var list []string
	for _, arg := range args {
		if valuer, ok := arg.(driver.Valuer); ok {
			value, err := valuer.Value()
			require.NoError(t, err)
			arg = value
		}
		list = append(list, "'"+fmt.Sprint(arg)+"'")
	}
	return strings.Join(list, ", ")
}

// Also covers finding L9.
func TestTransfer_F19_a_page_costs_the_same_on_any_backlog_mysql(t *testing.T) {
	t.Parallel()
	w := newOldWorld(t, testdb.MySQL(t)).initialize()
	w.database.Exec(t, fmt.Sprintf(`INSERT INTO %s (uuid, payload, metadata)
		WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)
		SELECT a.i, '{}', '{}' FROM n a CROSS JOIN n b WHERE b.i <= %d`, w.schemaTable(), planRows/1000))
	require.Equal(t, planRows, w.left())
	tables := statementsFor(w.statements, w.schemaTable(), w.offsetsTable())
	require.NoError(t, w.transfer(w.database.DB, nil).register(t.Context()))
	rows := make([]rowID, planPage)
	for i := range rows {
		rows[i].Offset = int64(30_000 + i)
	}
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			w.database.Exec(t, "ANALYZE TABLE "+w.schemaTable())
		}
		for _, after := range []int64{0, 25_000, 99_999_999} {
			within := position{After: rowID{Offset: after}}
			what := fmt.Sprintf("after %d, analyzed %t", after, analyzed)
			require.LessOrEqual(t, w.rowsRead(tables.Page(within, planPage)), planPage+5, what)
			require.LessOrEqual(t, w.rowsRead(tables.Peek(w.schemaTable(), within)), 10, what)
		}
		require.LessOrEqual(t, w.rowsRead(tables.Remove(rows)), 4*planPage+5, "remove")
	}
}

// rowsRead runs a query, rolls back what it does, and returns how many rows the server read for it.
func (w *oldWorld) rowsRead(query dialect.Query) (read int) {
	w.t.Helper()
	tx := w.begin(w.database.DB)
	defer func() { require.NoError(w.t, tx.Rollback()) }()
	_, err := tx.ExecContext(context.Background(), "FLUSH STATUS")
	require.NoError(w.t, err)
	w.drain(tx, query)
	rows, err := tx.QueryContext(context.Background(), "SHOW SESSION STATUS LIKE 'Handler_read%'")
	require.NoError(w.t, err)
	defer func() { require.NoError(w.t, rows.Close()) }()
	for rows.Next() {
		var name string
		var n int
		require.NoError(w.t, rows.Scan(&name, &n))
		read += n
	}
	require.NoError(w.t, rows.Err())
	return read
}

// drain runs a query and reads what it returns; Exec of a SELECT can hang in the driver.
func (w *oldWorld) drain(tx *sql.Tx, query dialect.Query) {
	w.t.Helper()
	rows, err := tx.QueryContext(context.Background(), query.Text, query.Args...)
	require.NoError(w.t, err)
	defer func() { require.NoError(w.t, rows.Close()) }()
	for more := true; more; {
		more = rows.Next()
	}
	require.NoError(w.t, rows.Err())
}
