package drain

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

func TestPatience_limit_doubles_after_each_failure(t *testing.T) {
	t.Parallel()
	p := newRemoval().patience
	for _, seconds := range []float64{2, 4, 8, 15, 15} {
		require.InDelta(t, seconds, p.limit.Seconds(), 0)
		p.inVain()
	}
	p.reset()
	require.Equal(t, LockPatience, p.limit)
}

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
func (c *counter) removeNext() map[int64]bool {
	c.Helper()
	left, err := c.d.remove(c.Context(), []dialect.Ref{c.suspects[0].Ref}, manner{})
	require.NoError(c, err)
	require.False(c, left.missing)
	c.suspects = c.suspects[1:]
	return left.locked
}

// On a server that is slow, and has no row locked, a few removals are done twice and not all of them. A lock is found as soon as ever afterwards.
func TestRemoval_stops_repeating_itself_on_a_slow_server(t *testing.T) {
	t.Parallel()
	database := testdb.Postgres(t)
	c := newCounter(t, database)
	p := &c.d.removal.patience
	*p = newPatience(50 * time.Millisecond)
	const removal = 300 * time.Millisecond
	end := sleepy(t, database, "0.3")
	before := time.Duration(0)
	for tries := 0; p.limit <= removal || p.limit != before; tries++ { // on a busy machine, a removal may be done before it is given up
		require.Less(t, tries, 10, "each removal is done twice")
		before = p.limit
		require.Empty(t, c.removeNext())
	}

	end()
	p.least = 10 * time.Second // of which a removal takes less, however busy the machine is
	require.Empty(t, c.removeNext())
	require.Equal(t, p.least, p.limit, "the server is fast again")

	*p = patience{least: 50 * time.Millisecond, limit: 400 * time.Millisecond}
	tx, err := database.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	locked := c.suspects[0].Ref.ID
	require.NoError(t, tx.QueryRowContext(t.Context(), database.Bind("SELECT id FROM postbox_messages WHERE id = ? FOR UPDATE"), locked).Scan(&locked))
	require.Equal(t, map[int64]bool{locked: true}, c.removeNext())
	require.Equal(t, p.least, p.limit, "a row was locked")
}

// MariaDB ends a wait for a lock by itself, so a removal that takes long there is only slow. Had it been given up, the server would have gone on with
// it, and its rows would have seemed locked.
func TestRemoval_is_not_given_up_on_a_slow_MariaDB(t *testing.T) {
	t.Parallel()
	database := testdb.MySQL(t)
	if !database.IsMariaDB(t) {
		t.Skip("MariaDB is missing: MySQL does not end a wait for a lock after a second")
	}
	c := newCounter(t, database)
	require.NoError(t, c.d.learnServer(t.Context()))
	require.Equal(t, mostPatience, c.d.removal.patience.limit)
	sleepy(t, database, "2.2")
	require.Empty(t, c.removeNext())
	require.Equal(t, counted-1, database.Count(t, "SELECT COUNT(*) FROM postbox_messages"))
}
