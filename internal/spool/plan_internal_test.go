package spool

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// What the server knows of a table that fills and empties is old, here that no message has a key. It concluded that each may
// as well be compared with all others, and so 40,000 took 300 µs each.
func TestFetch_reads_by_its_indexes_on_mysql(t *testing.T) {
	t.Parallel()
	database := testdb.MySQL(t).Migrate(t)
	names, err := dialect.NewNames("", "")
	require.NoError(t, err)
	statements, err := dialect.New(dialect.MySQL, names)
	require.NoError(t, err)
	own := New(statements, "outbox", 1)
	fill := func(key string) {
		drafts := make([]Draft, 2000)
		for i := range drafts {
			drafts[i] = Draft{Topic: "orders", Key: key}
		}
		require.NoError(t, own.Append(t.Context(), database.DB, Run, drafts))
	}
	database.Exec(t, "ALTER TABLE postbox_messages STATS_AUTO_RECALC = 0") // it would be renewed at any moment
	fill("")
	database.Exec(t, "ANALYZE TABLE postbox_messages")
	database.Exec(t, "DELETE FROM postbox_messages")
	fill("one")
	id, err := own.Open(t.Context(), database.DB)
	require.NoError(t, err)

	query := statements.Fetch(dialect.FetchParams{Spool: id, Cursors: []dialect.Cursor{{Lane: 0}}, PerLane: 100, Due: 100})
	rows, err := database.DB.QueryContext(t.Context(), "EXPLAIN "+query.Text, query.Args...)
	require.NoError(t, err)
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	require.NoError(t, err)
	var used []string
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
	require.ElementsMatch(t, []string{"m by ready", "b by retrying", "m by due", "b by retrying"}, used)
}
