package postbox_test

import (
	"database/sql"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// versions are those that a database has: only PostgreSQL has a table of its own for what waits, and only MySQL one of writers.
func versions(dialect postbox.Dialect) []int {
	switch dialect {
	case postbox.PostgreSQL:
		return []int{1, 2, 3, 4, 5, beforeWaiting + 1, beforeCheck + 1, 9, 11, 12, 13, 14, 16, 17, 18, 20, 23, 24, 25}
	case postbox.MySQL:
		return []int{1, 2, 3, 4, 5, 9, 10, 11, 13, 14, 16, 17, 18, 20, 24}
	default:
		return []int{1, 2, 3, 4, 5, 9, 11, 13, 14, 16, 17, 18, 20, 24}
	}
}

// The last versions without a table for what waits, and without a check of what stands in it.
const (
	beforeWaiting = 5
	beforeCheck   = 6
)

func newest(database *testdb.Database) int { return slices.Max(versions(database.Dialect)) }

func TestMigrate_F23_many_processes_start_at_once(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		const starters = 8
		handles := make([]*sql.DB, starters)
		for i := range handles {
			handles[i] = database.Open(t)
		}
		errs := make([]error, starters)
		var wg sync.WaitGroup
		for i := range handles {
			wg.Go(func() {
				errs[i] = postbox.Migrate(t.Context(), database.On(handles[i]))
			})
		}
		wg.Wait()
		for _, err := range errs {
			require.NoError(t, err)
		}
		require.Equal(t, newest(database), database.Count(t, "SELECT MAX(version_id) FROM postbox_version"))
		require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_messages"))
	})
}

func TestMigrate_F23_from_every_earlier_version(t *testing.T) {
	t.Parallel()
	for i := range versions(postbox.PostgreSQL) {
		testdb.Each(t, func(t *testing.T, database *testdb.Database) {
			theirs := versions(database.Dialect)
			version := theirs[min(i, len(theirs)-1)]
			require.NoError(t, postbox.MigrateTo(t.Context(), database.Postbox(), int64(version)))
			require.Equal(t, version, database.Count(t, "SELECT MAX(version_id) FROM postbox_version"))
			database.Exec(t, "INSERT INTO postbox_spools (name, lanes) VALUES ('kept', 4)")

			database.Migrate(t)
			require.Equal(t, newest(database), database.Count(t, "SELECT MAX(version_id) FROM postbox_version"))
			require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_spools"), "rows survive a migration")
			require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_sources"))
		})
	}
}

// Messages that waited before PostgreSQL had a table for that are there, and found by their time.
func TestMigrate_G1_moves_waiting_messages_to_their_table(t *testing.T) {
	t.Parallel()
	database := testdb.Postgres(t)
	require.NoError(t, postbox.MigrateTo(t.Context(), database.Postbox(), beforeWaiting))
	for state := range 3 {
		database.Exec(t, `INSERT INTO postbox_messages (spool, lane, state, available_at, created_at, topic, message_id, payload, metadata)
			VALUES (1, 0, ?, 0, 0, 'orders', ?, '', '{}')`, state, []byte{byte(state)})
	}
	database.Migrate(t)
	require.Equal(t, 3, database.Count(t, "SELECT COUNT(DISTINCT id) FROM postbox_messages"))
	require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM ONLY postbox_messages WHERE state = 0"))
	require.Equal(t, 2, database.Count(t, "SELECT COUNT(*) FROM postbox_waiting WHERE state = get_byte(message_id, 0)"))
	database.Exec(t, `INSERT INTO postbox_waiting (spool, lane, state, available_at, created_at, topic, message_id, payload, metadata)
		VALUES (1, 0, 1, 0, 0, 'orders', '', '', '{}')`)
	require.Equal(t, 4, database.Count(t, "SELECT COUNT(DISTINCT id) FROM postbox_messages"), "both tables have their ids from one sequence")
}

// A message that was made ready by hand among those that wait would never be settled, since that is done in the other table.
func TestMigrate_G2_keeps_ready_messages_out_of_the_waiting_table(t *testing.T) {
	t.Parallel()
	database := testdb.Postgres(t)
	require.NoError(t, postbox.MigrateTo(t.Context(), database.Postbox(), beforeCheck))
	for state := range 2 {
		database.Exec(t, `INSERT INTO postbox_waiting (spool, lane, state, available_at, created_at, topic, message_id, payload, metadata)
			VALUES (1, 0, ?, 0, 0, 'orders', '', '', '{}')`, state)
	}
	database.Migrate(t)
	require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM ONLY postbox_messages WHERE state = 0"))
	require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_waiting WHERE state = 1"))
	_, err := database.DB.ExecContext(t.Context(), "UPDATE postbox_messages SET state = 0")
	require.ErrorContains(t, err, "postbox_waiting_state_check")
}

// What the history has survives its new key, which lets an id stand there again, from another time.
func TestMigrate_G9_history_keeps_its_entries_under_a_new_key(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		require.NoError(t, postbox.MigrateTo(t.Context(), database.Postbox(), 9))
		insert := func(id, createdAt int) error {
			_, err := database.DB.ExecContext(t.Context(), database.Bind(`INSERT INTO postbox_history
				(id, spool, topic, message_id, ordering_key, payload, metadata, created_at, done_at, attempts)
				VALUES (?, 1, 'orders', ?, ?, ?, ?, ?, 6, 7)`), id, []byte("a"), []byte("b"), []byte("c"), []byte("d"), createdAt)
			return err
		}
		require.NoError(t, insert(1, 5))
		require.NoError(t, insert(2, 5))
		require.Error(t, insert(2, 6))
		database.Migrate(t)
		require.Equal(t, 2, database.Count(t, "SELECT COUNT(*) FROM postbox_history WHERE spool = 1 AND topic = 'orders' AND message_id = ? "+
			"AND ordering_key = ? AND payload = ? AND metadata = ? AND created_at = 5 AND done_at = 6 AND attempts = 7", []byte("a"), []byte("b"), []byte("c"), []byte("d")))
		require.NoError(t, insert(2, 6))
		require.Error(t, insert(2, 6))
	})
}

// MySQL commits each CREATE TABLE by itself, so a process killed in a migration leaves a part of it.
func TestMigrate_F23_half_applied(t *testing.T) {
	t.Parallel()
	database := testdb.MySQL(t)
	require.NoError(t, postbox.MigrateTo(t.Context(), database.Postbox(), 1))
	database.Exec(t, "CREATE TABLE postbox_failures LIKE postbox_lanes")
	database.Exec(t, "DROP TABLE postbox_failures")
	database.Exec(t, "DELETE FROM postbox_version WHERE version_id = 0") // killed before it was inserted
	database.Exec(t, `CREATE TABLE postbox_chores (name VARCHAR(100) NOT NULL PRIMARY KEY,
		holder VARCHAR(255) NOT NULL DEFAULT '', expires_at BIGINT NOT NULL DEFAULT 0, progress BLOB)`)
	database.Migrate(t)
	require.Equal(t, newest(database), database.Count(t, "SELECT MAX(version_id) FROM postbox_version"))
}

func TestMigrate_G10_one_connection(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.DB.SetMaxOpenConns(1)
		database.Migrate(t)
	})
}

func TestMigrate_two_modules_in_one_database(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		for _, prefix := range []string{"orders_", "payments_"} {
			module := postbox.Database{DB: database.DB, Dialect: database.Dialect, Prefix: prefix}
			require.NoError(t, postbox.Migrate(t.Context(), module))
			require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM "+prefix+"messages"))
		}
	})
}

func TestMigrate_into_a_schema(t *testing.T) {
	t.Parallel()
	database := testdb.Postgres(t)
	schema := "s_" + strings.ToLower(strings.ReplaceAll(postbox.NewMessageID(), "-", ""))[:24]
	database.Exec(t, "CREATE SCHEMA "+schema)
	t.Cleanup(func() { _, _ = database.DB.Exec("DROP SCHEMA " + schema + " CASCADE") }) //nolint:noctx // the test's context is over
	elsewhere := postbox.Database{DB: database.DB, Dialect: postbox.PostgreSQL, Schema: schema, Prefix: "pb_"}
	require.NoError(t, postbox.Migrate(t.Context(), elsewhere))
	require.NoError(t, postbox.Migrate(t.Context(), elsewhere))
	require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM "+schema+".pb_messages"))
}

func TestWriteMigrations_prints_SQL_that_runs_without_goose(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		var text strings.Builder
		mine := postbox.Database{Dialect: database.Dialect, Prefix: "mine_"}
		require.NoError(t, postbox.WriteMigrations(&text, mine, 0))
		require.NotContains(t, text.String(), "goose")
		for statement := range strings.SplitSeq(withoutComments(text.String()), ";") {
			if strings.TrimSpace(statement) != "" {
				database.Exec(t, statement)
			}
		}
		require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM mine_claims"))

		var rest strings.Builder
		require.NoError(t, postbox.WriteMigrations(&rest, mine, 2))
		require.NotContains(t, rest.String(), "mine_messages (")
		require.Contains(t, rest.String(), "mine_claims (")
	})
}

func withoutComments(text string) string {
	var kept []string
	for line := range strings.SplitSeq(text, "\n") {
		if !strings.HasPrefix(strings.TrimSpace(line), "--") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "\n")
}

func TestMigrate_bad_input_says_what_to_do(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		db   postbox.Database
		want string
	}{
		"no dialect":      {postbox.Database{}, "dialect is missing"},
		"unknown dialect": {postbox.Database{Dialect: "oracle"}, `dialect "oracle" is unknown`},
		"bad prefix":      {postbox.Database{Dialect: postbox.SQLite, Prefix: "a; DROP"}, "table prefix"},
		"schema":          {postbox.Database{Dialect: postbox.SQLite, Schema: "x"}, `Schema "x": SQLite has no schemas`},
		"schema on MySQL": {postbox.Database{Dialect: postbox.MySQL, Schema: "x"}, `Schema "x": MySQL and MariaDB have no schemas`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.ErrorContains(t, postbox.Migrate(t.Context(), test.db), test.want)
			require.ErrorContains(t, postbox.WriteMigrations(io.Discard, test.db, 0), test.want)
		})
	}
	for _, version := range []int64{-1, 999} {
		require.ErrorContains(t, postbox.MigrateTo(t.Context(), testdb.SQLite(t).Postbox(), version), fmt.Sprint("there is no version ", version))
	}
	require.EqualError(t, postbox.Migrate(t.Context(), postbox.Database{Dialect: postbox.SQLite}), "migrate: the database is nil: set DB")
}
