package pgtail

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/tail"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// A primary is gone, and the pool leads to another server with the same epoch before the process notices. A position of the old log would skip messages of the new one.
func TestKeeper_G2_stores_no_position_on_another_server(t *testing.T) {
	t.Parallel()
	database := testdb.Postgres(t)
	database.Migrate(t)
	statements, err := spool.StatementsIn(database.Postbox())
	require.NoError(t, err)
	set := statements.SetLogPosition("slot", 100, 100)
	database.Exec(t, "DELETE FROM postbox_log_position")
	require.NoError(t, spool.Run(t.Context(), database.DB, set))
	var incarnation string
	require.NoError(t, database.DB.QueryRowContext(t.Context(), statements.LogServer).Scan(&incarnation, new(string), new(string)))
	this, _, _ := strings.Cut(incarnation, " ")
	stored := func() int { return database.Count(t, "SELECT position FROM postbox_log_position") }
	try := func(server string, want error) {
		k := &keeper{outbox: tail.Outbox{DB: database.DB, Statements: statements}}
		k.position = dialect.LogPosition{Position: 100, Epoch: 1, Reserved: 100, Server: server}
		_, err := k.look(t.Context(), "outbox")
		require.ErrorIs(t, err, want, "it publishes nothing")
		require.ErrorIs(t, k.setReserved(t.Context(), 150), want)
		next := k.position
		next.Position = 200
		_, err = k.save(t.Context(), database.DB, next)
		require.ErrorIs(t, err, want)
	}
	try(this+"1", errFenced)
	require.Equal(t, 100, stored())
	try(this, nil)
	require.Equal(t, 200, stored())
}
