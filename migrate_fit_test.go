package postbox_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// The lock of a migration was asked for again and again where the database does not know the
// statement.
func TestMigrate_refuses_the_wrong_dialect_and_names_the_right_one(t *testing.T) {
	t.Parallel()
	names := map[postbox.Dialect]string{postbox.PostgreSQL: "PostgreSQL", postbox.MySQL: "MySQL", postbox.SQLite: "SQLite"}
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		for _, db := range []*sql.DB{database.DB, database.OpenWrapped(t)} {
			for dialect := range names {
				if dialect == database.Dialect {
					continue
				}
				err := postbox.Migrate(ctx, postbox.Database{DB: db, Dialect: dialect})
				require.ErrorContains(t, err, "this database is "+names[database.Dialect]+": set Dialect to postbox."+names[database.Dialect])
			}
			require.NoError(t, postbox.Migrate(ctx, database.On(db)))
		}
	})
}

func TestMigrate_refuses_a_file_of_SQLite_on_which_transactions_would_fail(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ options, want string }{
		"a bare address": {"", "does not wait for its lock"},
		"no immediate":   {"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)", "do not take its lock when they begin"},
		"no WAL":         {"?_pragma=busy_timeout(10000)&_txlock=immediate", ""},
		"all":            {"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_txlock=immediate", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "shop.db")+test.options)
			require.NoError(t, err)
			t.Cleanup(func() { _ = db.Close() })
			err = postbox.Migrate(t.Context(), postbox.Database{DB: db, Dialect: postbox.SQLite})
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, test.want)
			require.ErrorContains(t, err, "_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_txlock=immediate")
		})
	}
}

func TestMigrate_refuses_sessions_that_do_not_commit_by_themselves(t *testing.T) {
	t.Parallel()
	database := testdb.MySQL(t)
	for options, want := range map[string]string{
		"autocommit=0": "autocommit = 0",
		database.IsolationVariable(t) + "=%27READ-UNCOMMITTED%27": "READ UNCOMMITTED",
	} {
		err := postbox.Migrate(t.Context(), postbox.Database{DB: database.OpenWith(t, options), Dialect: postbox.MySQL})
		require.ErrorContains(t, err, want)
	}
}

// PostgreSQL writes names without quotes in small letters, and the table of versions was not found
// under the name with a capital.
func TestMigrate_twice_with_a_capital_in_the_prefix(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		shop := postbox.Database{DB: database.DB, Dialect: database.Dialect, Prefix: "Shop_"}
		for range 2 {
			require.NoError(t, postbox.Migrate(t.Context(), shop))
		}
		require.Equal(t, newest, database.Count(t, "SELECT MAX(version_id) FROM Shop_version"))
	})
}

func TestMigrate_into_a_schema_that_needs_quotes(t *testing.T) {
	t.Parallel()
	database := testdb.Postgres(t)
	for _, schema := range []string{"Shop_" + postbox.NewMessageID()[:8], "user"} {
		database.Exec(t, `CREATE SCHEMA IF NOT EXISTS "`+schema+`"`)
		t.Cleanup(func() { _, _ = database.DB.Exec(`DROP SCHEMA "` + schema + `" CASCADE`) }) //nolint:noctx // the test's context is over
		shop := postbox.Database{DB: database.DB, Dialect: database.Dialect, Schema: schema}
		for range 2 {
			require.NoError(t, postbox.Migrate(t.Context(), shop))
		}
		require.Zero(t, database.Count(t, `SELECT COUNT(*) FROM "`+schema+`".postbox_messages`))
	}
}
