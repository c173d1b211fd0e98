package drain

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// sleepy makes the removal of each message slow. What it returns ends that.
func sleepy(t *testing.T, database *testdb.Database, seconds string) (end func()) {
	t.Helper()
	if database.Dialect != postbox.PostgreSQL {
		database.Exec(t, "CREATE TRIGGER slow AFTER DELETE ON postbox_messages FOR EACH ROW DO SLEEP("+seconds+")")
		return func() { database.Exec(t, "DROP TRIGGER slow") }
	}
	database.Exec(t, "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep("+seconds+"); RETURN NULL; END $$")
	database.Exec(t, "CREATE TRIGGER slow AFTER DELETE ON postbox_messages FOR EACH ROW EXECUTE FUNCTION slow()")
	return func() { database.Exec(t, "DROP TRIGGER slow ON postbox_messages") }
}

// removeNext removes one message and returns which are locked.
func (c *counter) removeNext() leftover {
	c.Helper()
	left, err := c.d.settle.remove(c.Context(), []dialect.Ref{c.suspects[0].Ref}, manner{})
	require.NoError(c, err)
	require.False(c, left.missing)
	c.suspects = c.suspects[1:]
	return left
}

// On a server that is slow, and has no row locked, a removal is done twice, and the next one is
// half as large. That a row was locked says nothing of the size.
func TestRemoval_is_halved_on_a_slow_server(t *testing.T) {
	t.Parallel()
	database := testdb.Postgres(t)
	c := newCounter(t, database)
	c.d.settle.patience = 50 * time.Millisecond
	end := sleepy(t, database, "0.3")
	left := leftover{locked: map[int64]bool{c.suspects[0].Ref.ID: true}}
	for len(left.locked) > 0 { // the server may still be ending a statement that was given up, which has the row locked
		var err error
		left, err = c.d.settle.remove(t.Context(), []dialect.Ref{c.suspects[0].Ref}, manner{})
		require.NoError(t, err)
	}
	require.True(t, left.outOfTime)
	require.False(t, left.missing)
	c.suspects = c.suspects[1:]
	end()

	tx, err := database.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	locked := c.suspects[0].Ref.ID
	require.NoError(t, tx.QueryRowContext(t.Context(), database.Bind("SELECT id FROM postbox_messages WHERE id = ? FOR UPDATE"), locked).Scan(&locked))
	left = c.removeNext()
	require.Equal(t, map[int64]bool{locked: true}, left.locked)
	require.False(t, left.outOfTime)

	size := partSize{now: 1000, most: 1000}
	for _, n := range []int{1000, 500, 3, 1, 1} {
		size.halve(n)
		require.Equal(t, max(n/2, 1), size.now)
	}
	for _, want := range []int{2, 4, 7, 11} {
		size.worked(size.now - 1)
		size.worked(size.now)
		require.Equal(t, want, size.now)
	}
}

// MariaDB ends a wait for a lock by itself, so a removal that takes long there is only slow. Had it
// been given up, the server would have gone on with it, and its rows would have seemed locked.
func TestRemoval_is_not_given_up_on_a_slow_MariaDB(t *testing.T) {
	t.Parallel()
	database := testdb.MySQL(t)
	if !database.IsMariaDB(t) {
		t.Skip("MariaDB is missing: MySQL does not end a wait for a lock after a second")
	}
	c := newCounter(t, database)
	require.NoError(t, c.d.learnServer(t.Context()))
	require.Equal(t, mostPatience, c.d.settle.patience)
	sleepy(t, database, "2.2")
	require.Empty(t, c.removeNext().locked)
	require.Equal(t, counted-1, database.Count(t, "SELECT COUNT(*) FROM postbox_messages"))
}
