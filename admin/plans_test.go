package admin_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/enginetest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// An action that chooses few of many dead letters looks at a bounded number of them in each
// statement, whatever its filter, the plan and the statistics. A filter on a rare value made the
// database read and sort the whole table for each page.
func TestBulk_G8_each_statement_reads_a_bounded_number_of_letters(t *testing.T) {
	t.Parallel()
	const step = 10_000
	written := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.letters(1)
		columns := `origin, subject, spool, consumer, topic, message_id, ordering_key, key_hash, payload, metadata, created_at, attempts, error, cause`
		for i := range 15 {
			if database.Dialect == postbox.PostgreSQL && i == 8 { // the table grows after that
				b.database.Exec(t, "ANALYZE postbox_dead_letters")
			}
			b.database.Exec(t, `INSERT INTO postbox_dead_letters (died_at, `+columns+`) SELECT 1, `+columns+` FROM postbox_dead_letters`)
		}
		require.Greater(t, b.database.Count(t, "SELECT COUNT(*) FROM postbox_dead_letters"), 3*step)
		last := b.database.Count(t, "SELECT MAX(id) FROM postbox_dead_letters")
		b.database.Exec(t, "UPDATE postbox_dead_letters SET topic = 'rare', error = 'very rare', died_at = ? WHERE id > ?", written.UnixMicro(), last-6)
		db, record := b.database.OpenRecorded(t)
		acting, err := admin.New(b.database.On(db), admin.Config{}, nil)
		require.NoError(t, err)
		for _, chosen := range []admin.Filter{{Topic: "rare"}, {ErrorText: "very rare"}, {From: written}, {Shape: "very rare"}} {
			chosen.Limit = 1
			for name, act := range map[string]func(context.Context) (int, error){
				"requeue": func(ctx context.Context) (int, error) { return acting.Requeue(ctx, chosen, admin.Again{}) },
				"list": func(ctx context.Context) (int, error) {
					for page := chosen; ; {
						found, next, err := acting.DeadLetters(ctx, page)
						if page.After = next; err != nil || len(found) > 0 || next == "" {
							return len(found), err
						}
					}
				},
			} {
				record.Take()
				did, err := act(t.Context())
				require.NoError(t, err, "%s %s", name, chosen)
				require.Equal(t, 1, did, "%s %s", name, chosen)
				for _, asked := range record.Take() {
					if !strings.Contains(asked.Text, "FROM postbox_dead_letters d") || database.Dialect == postbox.SQLite {
						continue
					}
					query := dialect.Query{Text: asked.Text, Args: asked.Args}
					require.LessOrEqual(t, enginetest.Reads(t, database, query), 2*step, "%s %s: %s %v", name, chosen, query.Text, query.Args)
					if database.Dialect == postbox.PostgreSQL {
						require.LessOrEqual(t, readsOfGeneric(t, database, query), 2*step, "%s %s, generic: %s", name, chosen, query.Text)
					}
				}
			}
		}
	})
}

// A page of stuck keys is read along indexes, and PostgreSQL does not compile its statements, which
// took 0.7 s of 0.73.
func TestStuckKeys_G8_a_page_reads_few_of_very_many(t *testing.T) {
	t.Parallel()
	const many, limit = 200_000, 100
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		database.Exec(t, "INSERT INTO postbox_spools (name) VALUES ('outbox')")
		insert := `INSERT INTO %s (spool, state, lane, key_hash, available_at, created_at, topic, message_id, ordering_key, payload, metadata, attempts)
			SELECT %d, 2, n %% 32, n, 9000000000000000, 1700000000000000, 'orders', %[3]s, %[3]s, 'x', '{}', 1 FROM %[4]s`
		table, bytes, numbers := "postbox_messages", "CAST(n AS CHAR)",
			fmt.Sprintf("(WITH RECURSIVE r (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 1000) SELECT a.n + 1000 * (b.n - 1) AS n FROM r a, r b WHERE b.n <= %d) s", many/1000)
		analyze := "ANALYZE TABLE postbox_messages"
		if database.Dialect == postbox.PostgreSQL {
			table, bytes, numbers = "postbox_waiting", "convert_to(n::text, 'UTF8')", fmt.Sprintf("generate_series(1, %d) n", many)
			analyze = "ANALYZE"
		}
		spool := database.Count(t, "SELECT id FROM postbox_spools WHERE name = 'outbox'")
		database.Exec(t, fmt.Sprintf(insert, table, spool, bytes, numbers))
		require.Equal(t, many, database.Count(t, "SELECT COUNT(*) FROM postbox_messages"))
		database.Exec(t, analyze)
		db, record := database.OpenRecorded(t)
		operator, err := admin.New(database.On(db), admin.Config{}, nil)
		require.NoError(t, err)
		keys, err := operator.StuckKeys(t.Context(), admin.Filter{Target: admin.Outbox("outbox"), Limit: limit})
		require.NoError(t, err)
		require.Len(t, keys, limit)
		asked := record.Take()
		require.NotEmpty(t, asked)
		for _, query := range asked {
			reads := enginetest.Reads(t, database, dialect.Query{Text: query.Text, Args: query.Args})
			require.LessOrEqual(t, reads, 4*dialect.Lanes*limit, query.Text) // MariaDB reads a page of each lane
		}

		// Those of one key are not looked for among all.
		for _, key := range []string{"7", "none"} {
			_, _, err = operator.Messages(t.Context(), admin.Filter{Target: admin.Outbox("outbox"), Key: key, Status: admin.Retrying, Limit: 1})
			require.NoError(t, err)
			for _, query := range record.Take() {
				require.LessOrEqual(t, enginetest.Reads(t, database, dialect.Query{Text: query.Text, Args: query.Args}), 100, query.Text)
			}
		}
	})
}

// readsOfGeneric returns how many rows a statement reads with a plan for any arguments.
func readsOfGeneric(t *testing.T, database *testdb.Database, query dialect.Query) (reads int) {
	t.Helper()
	conn, err := database.DB.Conn(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	var args []string
	for _, arg := range query.Args {
		switch arg := arg.(type) {
		case string:
			args = append(args, "'"+arg+"'")
		case []byte:
			args = append(args, fmt.Sprintf(`'\x%x'`, arg))
		default:
			args = append(args, fmt.Sprint(arg))
		}
	}
	prepared := "EXECUTE p"
	if len(args) > 0 {
		prepared += "(" + strings.Join(args, ", ") + ")"
	}
	for _, text := range []string{"SET plan_cache_mode = force_generic_plan", "PREPARE p AS " + query.Text} {
		_, err = conn.ExecContext(t.Context(), text)
		require.NoError(t, err, text)
	}
	var text []byte
	require.NoError(t, conn.QueryRowContext(t.Context(), "EXPLAIN (ANALYZE, FORMAT JSON) "+prepared).Scan(&text))
	_, err = conn.ExecContext(t.Context(), "DEALLOCATE p")
	require.NoError(t, err)
	var plans []struct{ Plan map[string]any }
	require.NoError(t, json.Unmarshal(text, &plans))
	var add func(node map[string]any)
	add = func(node map[string]any) {
		if node["Relation Name"] == "postbox_dead_letters" {
			removed, _ := node["Rows Removed by Filter"].(float64)
			reads += int((node["Actual Rows"].(float64) + removed) * node["Actual Loops"].(float64))
		}
		parts, _ := node["Plans"].([]any)
		for _, part := range parts {
			add(part.(map[string]any))
		}
	}
	add(plans[0].Plan)
	return reads
}
