package crashpoints_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// All SQL of these tests stands here.

// createEffects returns the statement that makes the table in which handlers have their effects. It
// has no unique key: a second effect must show, not fail.
func createEffects(dialect postbox.Dialect) string {
	id := map[postbox.Dialect]string{
		postbox.SQLite:     "INTEGER PRIMARY KEY AUTOINCREMENT",
		postbox.PostgreSQL: "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
		postbox.MySQL:      "BIGINT AUTO_INCREMENT PRIMARY KEY",
	}[dialect]
	return "CREATE TABLE effects (id " + id + ", what VARCHAR(40) NOT NULL)"
}

const (
	insertEffect  = "INSERT INTO effects (what) VALUES (?)"
	selectEffects = "SELECT what FROM effects ORDER BY id"

	countPending = `SELECT COUNT(*) FROM postbox_messages m JOIN postbox_spools s ON s.id = m.spool WHERE s.name = ?`
	listPending  = `SELECT m.message_id FROM postbox_messages m JOIN postbox_spools s ON s.id = m.spool
WHERE s.name = ? ORDER BY m.id`
	countClaims   = "SELECT COUNT(*) FROM postbox_claims"
	countHistory  = "SELECT COUNT(*) FROM postbox_history"
	countFailures = "SELECT COUNT(*) FROM postbox_failures"
	countLetters  = "SELECT COUNT(*) FROM postbox_dead_letters"
	countActs     = "SELECT SUM(affected) FROM postbox_audit"
	// countTwice counts attempts of one message that were written down twice.
	countTwice = `SELECT COUNT(*) FROM (
	SELECT subject, attempt FROM postbox_failures WHERE attempt > 0 GROUP BY subject, attempt HAVING COUNT(*) > 1) twice`
	mostAttempts = "SELECT COALESCE(MAX(attempt), 0) FROM postbox_failures"
)

// ages are the statements by which so much time passes for what is kept, in microseconds.
var ages = []string{
	"UPDATE postbox_claims SET claimed_at = claimed_at - ?",
	"UPDATE postbox_failures SET failed_at = failed_at - ?",
	"UPDATE postbox_dead_letters SET died_at = died_at - ?",
	"UPDATE postbox_history SET done_at = done_at - ?",
}

// expires are the statements by which the leases of a dead process run out.
var expires = []string{
	"UPDATE postbox_members SET expires_at = 0",
	"UPDATE postbox_chores SET expires_at = 0",
}

// wipe empties all tables.
func wipe(t *testing.T, database *testdb.Database) {
	t.Helper()
	tx, err := database.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	for _, table := range []string{
		"effects", "postbox_messages", "postbox_lanes", "postbox_members", "postbox_spools", "postbox_dead_letters", "postbox_failures", "postbox_audit",
		"postbox_chores", "postbox_claims", "postbox_sources", "postbox_pauses", "postbox_topic_pauses", "postbox_history", "postbox_unique_keys", "postbox_receipts", "postbox_minutes",
	} {
		_, err := tx.ExecContext(t.Context(), "DELETE FROM "+table) //nolint:gosec // a name from the list above
		require.NoError(t, err)
	}
	require.NoError(t, tx.Commit())
}

// schemas list what a database has of tables, columns and indexes.
var schemas = map[postbox.Dialect]string{
	postbox.SQLite: "SELECT COALESCE(sql, name) FROM sqlite_master ORDER BY 1",
	postbox.PostgreSQL: `SELECT table_name || ' ' || column_name || ' ' || data_type || ' ' || is_nullable || ' ' || COALESCE(column_default, '')
	FROM information_schema.columns WHERE table_schema = current_schema()
UNION ALL SELECT indexname || ' ' || replace(indexdef, current_schema(), '') FROM pg_indexes WHERE schemaname = current_schema() ORDER BY 1`,
	postbox.MySQL: `SELECT CONCAT(table_name, ' ', column_name, ' ', column_type, ' ', is_nullable) FROM information_schema.columns
	WHERE table_schema = database()
UNION ALL SELECT CONCAT(table_name, ' ', index_name, ' ', seq_in_index, ' ', column_name) FROM information_schema.statistics
	WHERE table_schema = database() ORDER BY 1`,
}

const selectVersions = "SELECT version_id FROM postbox_version WHERE is_applied ORDER BY id"

// list returns the column that a query selects.
func list(t *testing.T, database *testdb.Database, query string, args ...any) []string {
	t.Helper()
	found, err := database.DB.QueryContext(t.Context(), database.Bind(query), args...)
	require.NoError(t, err, query)
	defer func() { _ = found.Close() }()
	values := []string{}
	for found.Next() {
		var value string
		require.NoError(t, found.Scan(&value))
		values = append(values, strings.TrimSpace(value))
	}
	require.NoError(t, found.Err())
	return values
}
