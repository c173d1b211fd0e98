package pgtail

import (
	"database/sql"
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
	epoch := int64(database.Count(t, "SELECT epoch FROM postbox_log_position"))
	try := func(server string, want error) {
		k := &keeper{outbox: tail.Outbox{DB: database.DB, Statements: statements}}
		k.position = dialect.LogPosition{Position: 100, Epoch: epoch, Reserved: 100, Server: server}
		_, err := k.look(t.Context(), "outbox", nil)
		require.ErrorIs(t, err, want, "it publishes nothing")
		require.ErrorIs(t, k.setReserved(t.Context(), 150), want)
		require.ErrorIs(t, k.storeAt(t, 200), want)
		require.ErrorIs(t, k.passTo(t, 300), want)
	}
	try(this+"1", errFenced)
	require.Equal(t, 100, stored())
	try(this, nil)
	require.Equal(t, 300, stored())
}

// storeAt stores a position as beside messages with rows.
func (k *keeper) storeAt(t *testing.T, position int64) error {
	t.Helper()
	next := k.position
	next.Position = position
	return spool.InTx(t.Context(), k.outbox.DB, k.outbox.Statements, func(tx *sql.Tx) error {
		_, err := k.save(t.Context(), tx, next)
		return err
	})
}

// passTo stores a position alone.
func (k *keeper) passTo(t *testing.T, position int64) error {
	t.Helper()
	next := k.position
	next.Position = position
	return k.pass(t.Context(), next)
}

// A log was removed and set up again while a statement of its last reader was on its way.
func TestKeeper_G6_epochs_of_a_removed_log_do_not_come_again(t *testing.T) {
	t.Parallel()
	database := testdb.Postgres(t)
	database.Migrate(t)
	statements, err := spool.StatementsIn(database.Postbox())
	require.NoError(t, err)
	outbox := tail.Outbox{DB: database.DB, Statements: statements}
	setUp := func() *keeper {
		require.NoError(t, spool.Run(t.Context(), database.DB, statements.SetLogPosition("slot", 100, 100)))
		position, err := slotState{name: "slot"}.claim(t.Context(), outbox)
		require.NoError(t, err)
		require.EqualValues(t, 100, position.Reserved, "no process can have published anything")
		var server string
		require.NoError(t, database.DB.QueryRowContext(t.Context(), statements.LogServer).Scan(&server, new(string), new(string)))
		position.Server, _, _ = strings.Cut(server, " ")
		return &keeper{outbox: outbox, position: position}
	}
	before := setUp()
	database.Exec(t, statements.RemoveLogPosition)
	now := setUp()
	require.ErrorIs(t, before.storeAt(t, 200), errFenced)
	require.ErrorIs(t, before.passTo(t, 200), errFenced)
	require.ErrorIs(t, before.setReserved(t.Context(), 150), errFenced)
	_, err = before.look(t.Context(), "outbox", nil)
	require.ErrorIs(t, err, errFenced)
	require.NoError(t, now.passTo(t, 300))

	again := setUp() // as after a loss, without a removal
	require.ErrorIs(t, now.passTo(t, 400), errFenced)
	require.NoError(t, again.passTo(t, 400))
}
