package admin_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/admin/internal/operatorsql"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/enginetest"
	"github.com/postbox-go/watermill-postbox/internal/keyhash"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// What operators ask for is found by an index, however many messages there are; pages walk it in
// its order. Also covers F19.
func TestOperator_G8_finds_messages_by_index(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := enginetest.NewBench(t, database)
		id, err := b.Spool.Open(t.Context(), database.DB)
		require.NoError(t, err)
		b.Append(database.DB, enginetest.Drafts(4000, func(i int) string { return fmt.Sprint(i % 100) })...)
		database.Exec(t, "UPDATE postbox_messages SET state = 2 WHERE id % 5 = 0")
		database.Exec(t, "UPDATE postbox_messages SET available_at = available_at + ? WHERE id % 10 = 0", int64(dialect.ParkDelay))
		database.MoveWaiting(t)
		if database.Dialect == postbox.MySQL { // else it takes a few pages for all, and may count other rows
			database.Exec(t, "ALTER TABLE postbox_messages STATS_SAMPLE_PAGES = 1000")
		}
		database.Exec(t, map[postbox.Dialect]string{
			postbox.PostgreSQL: "ANALYZE postbox_messages, postbox_waiting", postbox.MySQL: "ANALYZE TABLE postbox_messages", postbox.SQLite: "ANALYZE postbox_messages",
		}[database.Dialect])

		filter := operatorsql.MessageFilter{
			States: [2]int{dialect.StateReady, dialect.StateRetrying}, After: operatorsql.Place{State: 0, Lane: 3, ID: 2000}, Limit: 10,
		}
		listed := operatorsql.Place{ID: 2001}
		require.NoError(t, database.DB.QueryRowContext(t.Context(), "SELECT state, lane FROM postbox_messages WHERE id = 2001").Scan(&listed.State, &listed.Lane))
		for name, test := range map[string]struct {
			plan string
			want map[postbox.Dialect][]string
		}{
			"messages of a key that failed": {b.Plan(operatorsql.New(b.Statements).RetryingOfKey(operatorsql.KeyRef{Spool: id, Hash: keyhash.Of("7")}, filter)), map[postbox.Dialect][]string{
				postbox.PostgreSQL: {"postbox_waiting_retrying", "(key_hash = "},
				postbox.MySQL:      {"key=retrying"},
				postbox.SQLite:     {"USING INDEX postbox_messages_retrying (spool=? AND key_hash=?)"},
			}},
			"one message": {b.Plan(operatorsql.New(b.Statements).PendingMessage(operatorsql.Lookup{Spool: id, ID: 2000})), map[postbox.Dialect][]string{
				postbox.PostgreSQL: {"Index Scan using postbox_messages_pkey", "(lane = ANY (", "(id = '2000'::bigint))"},
				postbox.MySQL:      {"key=PRIMARY"},
				postbox.SQLite:     {"USING INTEGER PRIMARY KEY (rowid=?)"},
			}},
			"a listed message": {b.Plan(operatorsql.New(b.Statements).LockListed(id, listed)), map[postbox.Dialect][]string{
				postbox.PostgreSQL: {"Index Scan using postbox_messages_pkey", "(state = '0'::smallint)", "(id = '2001'::bigint)"},
				postbox.MySQL:      {"key=PRIMARY"},
				postbox.SQLite:     {"USING INTEGER PRIMARY KEY (rowid=?)"},
			}},
			"a reschedule": {b.Plan(operatorsql.New(b.Statements).SetDue(id, dialect.Ref{State: listed.State, Lane: int(listed.Lane), ID: listed.ID}, 0)), map[postbox.Dialect][]string{
				postbox.PostgreSQL: {"postbox_messages_pkey", "(id = '2001'::bigint)"},
				postbox.MySQL:      {"key=PRIMARY"},
				postbox.SQLite:     {"USING INTEGER PRIMARY KEY (rowid=?)"},
			}},
		} {
			for _, want := range test.want[database.Dialect] {
				require.Contains(t, test.plan, want, name)
			}
			if name == "messages of a key that failed" { // it sorts the few that the index has found
				continue
			}
			require.NotRegexp(t, `(-> *|=|file)sort\b`, strings.ToLower(test.plan), name)
			require.NotContains(t, test.plan, "TEMP B-TREE", name)
		}
		filter.Topic = "other"
		searches := []dialect.Query{operatorsql.New(b.Statements).Search(id, filter, 100)}
		if end, separate := operatorsql.New(b.Statements).SearchEnd(id, filter, 100); separate {
			searches = []dialect.Query{end, operatorsql.New(b.Statements).SearchUpTo(id, filter, operatorsql.Place{State: 1, Lane: 2, ID: 30})}
		}
		for _, search := range searches { // it sorts what it has looked at
			for _, want := range map[postbox.Dialect][]string{
				postbox.PostgreSQL: {"CTE p", "Index Scan using postbox_messages_pkey", "ROW(state, lane, id) > ROW("},
				postbox.MySQL:      {"key=ready", "type=range"},
				postbox.SQLite:     {"USING INDEX postbox_messages_ready (spool=? AND (state,lane)>(?,?) AND state<?)"},
			}[database.Dialect] {
				require.Contains(t, b.Plan(search), want)
			}
		}
		if database.Dialect == postbox.SQLite { // the others would read an empty table as a whole
			require.Contains(t, b.Plan(operatorsql.New(b.Statements).AuditRows(operatorsql.AuditFilter{Limit: 10})), "USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)")
		}
	})
}

func TestDescribed(t *testing.T) {
	t.Parallel()
	require.Equal(t, `queue "fraud"`, admin.Queue("fraud").String())
	require.Equal(t, `outbox "orders"`, admin.Outbox("orders").String())
}
