package enginetest

import (
	"context"
	"database/sql"
	"encoding/json"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// Reads returns how many rows or index entries of tables a statement reads. SQLite does not tell:
// there it looks at the plan, by which each table is read along an index, as far as a limit, and
// returns 0.
func (b *Bench) Reads(query dialect.Query) int {
	b.T.Helper()
	if b.Database.Dialect == postbox.SQLite {
		plan := b.Plan(query)
		require.NotRegexp(b.T, `SCAN (m|d|h|e)\b`, plan)
		require.NotContains(b.T, plan, "TEMP B-TREE FOR ORDER BY")
		return 0
	}
	return Reads(b.T, b.Database, query)
}

// Reads is the same on a server.
func Reads(t *testing.T, database *testdb.Database, query dialect.Query) int {
	t.Helper()
	ctx := t.Context()
	conn, err := database.DB.Conn(ctx)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	if database.Dialect == postbox.MySQL {
		before := handlerReads(ctx, t, conn)
		rows, err := conn.QueryContext(ctx, query.Text, query.Args...)
		consume(t, rows, err)
		return handlerReads(ctx, t, conn) - before
	}
	var text []byte
	require.NoError(t, conn.QueryRowContext(ctx, "EXPLAIN (ANALYZE, FORMAT JSON) "+query.Text, query.Args...).Scan(&text))
	var plans []struct {
		Plan planNode
		JIT  any
	}
	require.NoError(t, json.Unmarshal(text, &plans))
	require.Nil(t, plans[0].JIT, "to compile the statement takes longer than to run it")
	return plans[0].Plan.reads()
}

// planNode is a part of a plan of PostgreSQL.
type planNode struct {
	Relation string     `json:"Relation Name"`
	Rows     float64    `json:"Actual Rows"`
	Removed  float64    `json:"Rows Removed by Filter"`
	Loops    float64    `json:"Actual Loops"`
	Plans    []planNode `json:"Plans"`
}

func (n planNode) reads() int {
	sum := 0
	if n.Relation != "" {
		sum = int((n.Rows + n.Removed) * n.Loops)
	}
	for _, part := range n.Plans {
		sum += part.reads()
	}
	return sum
}

// handlerReads returns how many rows the session has read from tables, without those of temporary
// ones. Index entries that the storage engine leaves out by itself, because of a condition, are
// among them: those that it tries and that do not match.
func handlerReads(ctx context.Context, t *testing.T, conn *sql.Conn) int {
	t.Helper()
	rows, err := conn.QueryContext(ctx, "SHOW SESSION STATUS WHERE Variable_name IN ('Handler_read_key', 'Handler_read_next', 'Handler_read_prev', 'Handler_read_first', 'Handler_read_last', 'Handler_read_rnd', 'Handler_icp_attempts', 'Handler_icp_match')")
	require.NoError(t, err)
	defer func() { _ = rows.Close() }()
	sum := 0
	for rows.Next() {
		var name, value string
		require.NoError(t, rows.Scan(&name, &value))
		n, err := strconv.Atoi(value)
		require.NoError(t, err)
		if name == "Handler_icp_match" {
			n = -n // it is read, and then counts as the others do
		}
		sum += n
	}
	require.NoError(t, rows.Err())
	return sum
}

func consume(t *testing.T, rows *sql.Rows, err error) {
	t.Helper()
	require.NoError(t, err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
	}
	require.NoError(t, rows.Err())
}
