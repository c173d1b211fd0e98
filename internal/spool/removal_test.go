package spool_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// appendLocked appends a message, whose row somebody locks until unlock is called.
func (b *bench) appendLocked() (unlock func()) {
	b.t.Helper()
	b.append(b.database.DB, draft("locked", ""))
	tx, err := b.database.DB.BeginTx(b.t.Context(), nil)
	require.NoError(b.t, err)
	var id int64
	require.NoError(b.t, tx.QueryRowContext(b.t.Context(), "SELECT id FROM postbox_messages FOR UPDATE").Scan(&id))
	return func() { require.NoError(b.t, tx.Rollback()) }
}

// Rows that are done and cannot be deleted for a while, here because somebody has locked one, keep nobody from reading.
func TestDrainer_reads_while_what_is_done_is_removed(t *testing.T) {
	t.Parallel()
	database := testdb.Postgres(t)
	b := newBench(t, database)
	unlock := b.appendLocked()
	handler := &recorder{}
	b.start(database.DB, handler, config("one"))
	b.eventually(func() bool { return len(handler.ids()) == 1 }, "it is done")
	b.append(database.DB, drafts(5, func(int) string { return "" })...)
	b.eventually(func() bool { return len(handler.ids()) == 6 }, "the others are read all the same")
	require.Equal(t, 6, b.pending(), "nothing is removed yet")
	unlock()
	b.eventually(func() bool { return b.pending() == 0 }, "all go")
	require.Len(t, handler.ids(), 6, "and nobody came twice")
}

// Nor do they keep a drainer from stopping in time.
func TestDrainer_G12_stops_in_time_while_what_is_done_cannot_be_removed(t *testing.T) {
	t.Parallel()
	database := testdb.Postgres(t)
	b := newBench(t, database)
	unlock := b.appendLocked()
	handler := &recorder{}
	c := config("one")
	c.Close = 500 * time.Millisecond
	r := b.start(database.DB, handler, c)
	b.eventually(func() bool { return len(handler.ids()) == 1 }, "it is done")
	r.stop(t)
	unlock()
	require.Equal(t, 1, b.pending(), "it is handled again")
}
