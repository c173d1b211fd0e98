package postbox_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// runPlain executes the migrations after a version as another tool does.
func runPlain(t *testing.T, database *testdb.Database, from int64) {
	t.Helper()
	var text strings.Builder
	require.NoError(t, postbox.WriteMigrations(&text, database.Postbox(), from))
	database.RunScript(t, text.String())
}

// noted returns the versions that the tables have, and 0 for the table of versions.
func noted(t *testing.T, database *testdb.Database) (found []int) {
	t.Helper()
	rows, err := database.DB.QueryContext(t.Context(), "SELECT version_id FROM postbox_version WHERE is_applied ORDER BY id")
	require.NoError(t, err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var version int
		require.NoError(t, rows.Scan(&version))
		found = append(found, version)
	}
	require.NoError(t, rows.Err())
	return found
}

// The version was noted by Migrate alone, so with another tool all migrations seemed to be missing
// for ever, and Migrate failed since its tables were there.
func TestWriteMigrations_notes_what_has_run(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(t *testing.T, database *testdb.Database){
		"all with another tool": func(t *testing.T, database *testdb.Database) {
			runPlain(t, database, 0)
		},
		"first Migrate, then another tool": func(t *testing.T, database *testdb.Database) {
			require.NoError(t, postbox.Migrate(t.Context(), database.Postbox()))
			runPlain(t, database, newest)
		},
		"the last ones twice": func(t *testing.T, database *testdb.Database) {
			runPlain(t, database, 0)
			runPlain(t, database, newest)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				test(t, database)
				require.NoError(t, postbox.Migrate(t.Context(), database.Postbox()))
				require.Equal(t, []int{0, newest}, noted(t, database))
				require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_receipts"))
			})
		})
	}
}
