package upgrade_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// strongLocks has the strongest lock of the session on each table that existed before its transaction, apart from those that an INSERT takes
// too. The order of the alphabet is that of their strength, as far as migrations take them.
const strongLocks = `
	SELECT DISTINCT ON (c.relname) c.relname, l.mode FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
	WHERE l.pid = pg_backend_pid() AND c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r'
	  AND c.relname::text = ANY (string_to_array($1, ','))
	  AND l.mode NOT IN ('AccessShareLock', 'RowShareLock', 'RowExclusiveLock')
	ORDER BY c.relname, l.mode`

// Each lock of a migration on a table that others use is in the table of docs/upgrade.md, and nothing else is.
func TestUpgrade_the_guide_names_each_lock_of_a_migration_on_PostgreSQL(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/upgrade.md")
	require.NoError(t, err)
	var documented []string
	for _, row := range regexp.MustCompile("(?m)^\\| (\\d+) \\| `(postbox_\\w+)` \\| `([A-Z ]+)` \\|").FindAllStringSubmatch(string(page), -1) {
		documented = append(documented, fmt.Sprintf("%s %s %s", row[1], row[2], row[3]))
	}
	require.ElementsMatch(t, locks(t, testdb.Postgres(t)), documented)
}

// locks runs the migrations, each in a transaction, and returns the strong locks that each holds at its end.
func locks(t *testing.T, database *testdb.Database) (found []string) {
	t.Helper()
	for _, m := range migrations(t, database) {
		var before string
		require.NoError(t, database.DB.QueryRowContext(t.Context(),
			"SELECT COALESCE(string_agg(tablename, ','), '') FROM pg_tables WHERE schemaname = current_schema()").Scan(&before))
		tx, err := database.DB.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = tx.ExecContext(t.Context(), m.text)
		require.NoError(t, err)
		for _, lock := range held(t, tx, before) {
			found = append(found, fmt.Sprintf("%d %s", m.version, lock))
		}
		require.NoError(t, tx.Commit())
	}
	return found
}

// held returns the strong locks of the transaction on tables of a list with commas.
func held(t *testing.T, tx *sql.Tx, tables string) (found []string) {
	t.Helper()
	rows, err := tx.QueryContext(t.Context(), strongLocks, tables)
	require.NoError(t, err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var table, mode string
		require.NoError(t, rows.Scan(&table, &mode))
		found = append(found, table+" "+inSQL(mode))
	}
	require.NoError(t, rows.Err())
	return found
}

// inSQL returns the name of a lock as LOCK TABLE writes it.
func inSQL(mode string) string {
	words := regexp.MustCompile("[A-Z][a-z]+").FindAllString(strings.TrimSuffix(mode, "Lock"), -1)
	return strings.ToUpper(strings.Join(words, " "))
}

// MySQL and MariaDB wait for a transaction that has read the table, and all who come later wait behind. So a migration gives up after a second, lets the
// others go on, and tries again.
func TestUpgrade_on_MariaDB_a_migration_lets_others_go_on_while_a_transaction_is_in_its_way(t *testing.T) {
	t.Parallel()
	database := testdb.MySQL(t)
	require.NoError(t, postbox.MigrateTo(t.Context(), database.Postbox(), 10))
	reader, err := database.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = reader.Rollback() }()
	read := func() error {
		return reader.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM postbox_history").Scan(new(int))
	}
	require.NoError(t, read())

	migrating := database.Open(t) // a pool of its own, whose session has the setting of its address afterwards
	migrating.SetMaxOpenConns(1)
	before := lockWait(t, migrating)
	ended := make(chan error, 1)
	go func() { ended <- postbox.Migrate(context.WithoutCancel(t.Context()), database.On(migrating)) }()
	require.Eventually(t, func() bool {
		return database.Count(t, "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND state LIKE 'Waiting for table metadata lock%'") > 0
	}, time.Minute, time.Millisecond, "the migration waits for the reader")

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	require.NoError(t, database.DB.QueryRowContext(ctx, "SELECT COUNT(*) FROM postbox_history").Scan(new(int)), "another reader goes on")
	require.Empty(t, ended, "it does not give up")
	require.NoError(t, reader.Rollback())
	require.NoError(t, <-ended)
	require.Equal(t, before, lockWait(t, migrating))
	require.NoError(t, try(t, database, parts["publish"]))
	require.NoError(t, try(t, database, parts["forward"]))
}

// lockWait returns how many seconds the session of the pool waits for a table.
func lockWait(t *testing.T, db *sql.DB) (seconds int64) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT @@SESSION.lock_wait_timeout").Scan(&seconds))
	return seconds
}
