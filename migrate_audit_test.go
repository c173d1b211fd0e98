package postbox_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// Nobody else deletes what operators did: a process that a stranger has taken over must not be able
// to.
func TestMigrate_deletes_what_operators_did_more_than_a_year_ago(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		require.NoError(t, postbox.Migrate(t.Context(), database.Postbox()))
		statements, err := dialect.For(dialect.Kind(database.Dialect), "", "", "")
		require.NoError(t, err)
		year := 365 * 24 * time.Hour
		for range 1003 {
			require.NoError(t, spool.Run(t.Context(), database.DB, statements.RecordAct(dialect.AuditRow{Operation: postbox.NewMessageID()})))
		}
		database.Exec(t, "UPDATE postbox_audit SET acted_at = ?", time.Now().Add(-year-time.Hour).UnixMicro())
		require.NoError(t, spool.Run(t.Context(), database.DB, statements.RecordAct(dialect.AuditRow{Operation: "young"})))
		database.Exec(t, "UPDATE postbox_audit SET acted_at = ? WHERE operation = 'young'", time.Now().Add(-year+time.Hour).UnixMicro())
		require.NoError(t, postbox.Migrate(t.Context(), database.Postbox()))
		require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_audit"))
	})
}

// The server has begun with a clock that is years ahead, by which all entries would be too old.
func TestMigrate_deletes_nothing_while_the_clock_of_the_database_is_ahead(t *testing.T) {
	t.Parallel()
	database := testdb.MySQL(t)
	require.NoError(t, postbox.Migrate(t.Context(), database.Postbox()))
	statements, err := dialect.For(dialect.Kind(database.Dialect), "", "", "")
	require.NoError(t, err)
	require.NoError(t, spool.Run(t.Context(), database.DB, statements.RecordAct(dialect.AuditRow{Operation: "act"})))
	db := database.OpenWith(t, fmt.Sprintf("timestamp=%d", time.Now().Add(2*365*24*time.Hour).Unix()))
	require.NoError(t, postbox.Migrate(t.Context(), database.On(db)))
	require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_audit"))
}
