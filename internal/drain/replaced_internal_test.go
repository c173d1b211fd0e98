package drain

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// A database that was restored or promoted gives out ids again. Whatever is known of a message of
// before must not touch the message that has its id now: each guard is tried on rows whose id,
// lane, state and token are the known ones, and whose time is another one.
func TestGuards_spare_a_message_with_a_reused_id(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		for name, state := range map[string]int{"ready": dialect.StateReady, "waiting": dialect.StateRetrying} {
			t.Run(name, func(t *testing.T) { guardsSpare(t, database, state) })
		}
	})
}

func guardsSpare(t *testing.T, database *testdb.Database, state int) {
	t.Helper()
	c := newCounter(t, database)
	database.Exec(t, "UPDATE postbox_messages SET state = ?, created_at = created_at + 1", state)
	database.MoveWaiting(t)
	for _, m := range c.suspects {
		m.Ref.State = state
	}
	d, m, two := c.d, c.suspects[0], []dialect.Ref{c.suspects[0].Ref, c.suspects[1].Ref}
	ctx := t.Context()
	inTx := func(work func(tx *sql.Tx) error) {
		t.Helper()
		require.NoError(t, spool.InTx(ctx, d.db, d.spool.Statements, work))
	}
	for _, keep := range []bool{false, true} {
		for _, refs := range [][]dialect.Ref{two, two[:1]} {
			left, err := d.settle.remove(ctx, refs, manner{keep: keep})
			require.NoError(t, err)
			require.True(t, left.missing)
		}
		copied := *m
		copied.Keep = keep
		err := spool.InTx(ctx, d.db, d.spool.Statements, func(tx *sql.Tx) error { return spool.Settle(ctx, tx, spool.Directly, []*spool.Message{&copied}) })
		require.ErrorIs(t, err, spool.ErrLost)
	}
	for _, dead := range []bool{false, true} {
		failed := []dialect.Failed{{AsRead: dialect.AsRead{Ref: m.Ref}, Dead: dead}}
		inTx(func(tx *sql.Tx) error {
			mine, locked, err := d.spool.LockAsRead(ctx, tx, d.id.Load(), []dialect.AsRead{failed[0].AsRead})
			require.Empty(t, mine)
			require.Empty(t, locked)
			return err
		})
		err := spool.InTx(ctx, d.db, d.spool.Statements, func(tx *sql.Tx) error { return d.spool.SettleFailed(ctx, tx, d.id.Load(), "one", failed) })
		require.ErrorIs(t, err, spool.ErrLost)
	}
	found, err := d.loadPayload(ctx, d.db, m)
	require.NoError(t, err)
	require.False(t, found, "its payload is that of another message")
	require.Len(t, c.count(), counted)
	require.Zero(t, c.starts())
	inTx(func(tx *sql.Tx) error {
		locked, err := spool.SelectIDs(ctx, tx, d.spool.Statements.LockAsRead(d.id.Load(), []dialect.AsRead{{Ref: m.Ref}}))
		require.Empty(t, locked)
		return err
	})
	inTx(func(tx *sql.Tx) error {
		changed, err := spool.ExecPrepared(ctx, tx, nil, d.spool.Statements.CountStarts(d.id.Load(), []dialect.AsRead{{Ref: m.Ref}}))
		require.Zero(t, changed)
		return err
	})

	require.Equal(t, counted, database.Count(t, "SELECT COUNT(*) FROM postbox_messages WHERE state = ? AND attempts = 0", state))
	for _, table := range []string{"history", "dead_letters", "failures"} {
		require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_"+table), table)
	}
	database.Exec(t, "DELETE FROM postbox_messages")
	d.leaveAll(t)
}

// leaveAll hands everything back, for the next drainer of the test.
func (d *Drainer) leaveAll(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, d.handBackAll(ctx))
}
