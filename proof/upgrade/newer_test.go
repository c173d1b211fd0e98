package upgrade_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// A process of this version that starts, or starts again, after a newer one has migrated the tables finds nothing to do.
func TestUpgrade_a_process_that_migrates_finds_newer_tables_and_goes_on(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		require.NoError(t, postbox.Migrate(t.Context(), database.Postbox()))
		database.Exec(t, "INSERT INTO postbox_version (version_id, is_applied) VALUES (9999, TRUE)")
		require.NoError(t, postbox.Migrate(t.Context(), database.Postbox()))
		for name, work := range parts {
			require.NoError(t, try(t, database, work), name)
		}
	})
}

// Migrations only go up: an earlier version changes nothing.
func TestUpgrade_an_earlier_version_changes_nothing(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		require.NoError(t, postbox.Migrate(t.Context(), database.Postbox()))
		newest := database.Count(t, "SELECT MAX(version_id) FROM postbox_version")
		require.NoError(t, postbox.MigrateTo(t.Context(), database.Postbox(), 5))
		require.Equal(t, newest, database.Count(t, "SELECT MAX(version_id) FROM postbox_version"))
		require.NoError(t, try(t, database, parts["queue"]))
	})
}
