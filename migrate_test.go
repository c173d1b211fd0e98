package postbox_test

import (
	"database/sql"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// newest is the version of the tables.
const newest = 1

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
		require.Equal(t, newest, database.Count(t, "SELECT MAX(version_id) FROM postbox_version"))
		require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_messages"))
	})
}

// Such tables are of the months before the first release, when a lane had a lease of its own. Their
// migrations have higher numbers.
func TestMigrate_refuses_tables_of_an_earlier_state(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		require.NoError(t, postbox.Migrate(t.Context(), database.Postbox()))
		database.Exec(t, "ALTER TABLE postbox_lanes ADD COLUMN expires_at BIGINT NOT NULL DEFAULT 0")
		require.ErrorContains(t, postbox.Migrate(t.Context(), database.Postbox()), "its tables are of a state from before the first release")
		fwd, err := forwarder.New(database.Postbox(), gochannel.NewGoChannel(gochannel.Config{}, nil), forwarder.Config{}, nil)
		require.NoError(t, err)
		require.ErrorContains(t, fwd.Run(t.Context()), "its tables are of a state from before the first release")
	})
}

// A process of this version that starts, or starts again, after a newer one has migrated the tables
// finds nothing to do.
func TestMigrate_finds_newer_tables_and_goes_on(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		require.NoError(t, postbox.Migrate(t.Context(), database.Postbox()))
		database.Exec(t, "INSERT INTO postbox_version (version_id, is_applied) VALUES (9999, TRUE)")
		require.NoError(t, postbox.Migrate(t.Context(), database.Postbox()))
		require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_messages"))
	})
}

// A message that was made ready by hand among those that wait would never be settled, since that is
// done in the other table.
func TestMigrate_G2_keeps_ready_messages_out_of_the_waiting_table(t *testing.T) {
	t.Parallel()
	database := testdb.Postgres(t).Migrate(t)
	database.Exec(t, `INSERT INTO postbox_waiting (spool, lane, state, available_at, created_at, topic, message_id, payload, metadata)
		VALUES (1, 0, 1, 0, 0, 'orders', '', '', '{}')`)
	_, err := database.DB.ExecContext(t.Context(), "UPDATE postbox_messages SET state = 0")
	require.ErrorContains(t, err, "postbox_waiting_state_check")
	require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_waiting WHERE state = 1"))
}

// MySQL commits each CREATE TABLE by itself, so a process killed in a migration leaves a part of
// it.
func TestMigrate_F23_half_applied(t *testing.T) {
	t.Parallel()
	database := testdb.MySQL(t)
	require.NoError(t, postbox.Migrate(t.Context(), database.Postbox()))
	for _, table := range []string{"failures", "claims", "unique_keys"} { // those behind them were not there either
		database.Exec(t, "DROP TABLE postbox_"+table)
	}
	database.Exec(t, "DELETE FROM postbox_version") // killed before it was inserted
	require.NoError(t, postbox.Migrate(t.Context(), database.Postbox()))
	require.Equal(t, newest, database.Count(t, "SELECT MAX(version_id) FROM postbox_version"))
	for _, table := range []string{"failures", "claims", "unique_keys"} {
		require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_"+table))
	}
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
		database.RunScript(t, text.String())
		require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM mine_claims"))

		var rest strings.Builder
		require.NoError(t, postbox.WriteMigrations(&rest, mine, newest))
		require.NotContains(t, rest.String(), "mine_messages (")
		require.Contains(t, rest.String(), "mine_version (")
	})
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
	require.EqualError(t, postbox.Migrate(t.Context(), postbox.Database{Dialect: postbox.SQLite}), "migrate: the database is nil: set DB")
}
