package drain_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// appendLocked appends a message, whose row somebody locks until unlock is called.
func (b *bench) appendLocked() (unlock func()) {
	b.T.Helper()
	b.Append(b.Database.DB, draft("locked", ""))
	tx, err := b.Database.DB.BeginTx(b.T.Context(), nil)
	require.NoError(b.T, err)
	var id int64
	require.NoError(b.T, tx.QueryRowContext(b.T.Context(), "SELECT id FROM postbox_messages FOR UPDATE").Scan(&id))
	return func() { require.NoError(b.T, tx.Rollback()) }
}

// Rows that are done and cannot be deleted for a while, here because somebody has locked one, keep
// nobody from reading.
func TestDrainer_reads_while_it_removes_finished_messages(t *testing.T) {
	t.Parallel()
	database := testdb.Postgres(t)
	b := newBench(t, database)
	unlock := b.appendLocked()
	handler := &recorder{}
	b.start(database.DB, handler, config("one"))
	b.Eventually(func() bool { return len(handler.ids()) == 1 }, "it is done")
	b.Append(database.DB, drafts(5, func(int) string { return "" })...)
	b.Eventually(func() bool { return len(handler.ids()) == 6 }, "the others are read all the same")
	require.Equal(t, 6, b.Pending(), "nothing is removed yet")
	unlock()
	b.Eventually(func() bool { return b.Pending() == 0 }, "all go")
	require.Len(t, handler.ids(), 6, "and nobody came twice")
}

// Nor do they keep a drainer from stopping in time.
func TestDrainer_G12_stops_in_time_while_finished_messages_cannot_be_removed(t *testing.T) {
	t.Parallel()
	database := testdb.Postgres(t)
	b := newBench(t, database)
	unlock := b.appendLocked()
	handler := &recorder{}
	c := config("one")
	c.Close = 500 * time.Millisecond
	r := b.start(database.DB, handler, c)
	b.Eventually(func() bool { return len(handler.ids()) == 1 }, "it is done")
	r.stop(t)
	unlock()
	require.Equal(t, 1, b.Pending(), "it is handled again")
}
