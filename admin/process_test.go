package admin_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// The history names the process that has handled a message, without which of its forwarders,
// queues or stores it was.
func TestMessage_of_a_history_names_its_process(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.append(draft("1", "orders", "a"))
		stop := b.drainWith(database.DB, newHandler(func(*spool.Message) error { return nil }), func(c *drain.Config) {
			c.History, c.Holder = time.Hour, spool.ProcessName()+" "+postbox.NewMessageID()
		})
		b.eventually(func() bool { return b.pending() == 0 }, "it is done")
		stop()
		b.received("2")
		for _, target := range []admin.Target{b.target, admin.Inbox("billing")} {
			list, _, err := b.admin.Messages(t.Context(), admin.Filter{Target: target, Status: admin.Done})
			require.NoError(t, err)
			require.Len(t, list, 1)
			require.Equal(t, spool.ProcessName(), list[0].Process)
			one, err := b.admin.Message(t.Context(), admin.Filter{Target: target, ID: list[0].ID})
			require.NoError(t, err)
			require.Equal(t, spool.ProcessName(), one.Process)
		}
	})
}

// A change of a message's time waits for no lock of another message, whether it is there or gone.
func TestRunNow_waits_for_no_other_message(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.append(draft("1", "orders", "a"), draft("2", "orders", "b"))
		b.exec("UPDATE postbox_messages SET state = 2, available_at = available_at + 3600000000")
		database.MoveWaiting(t)
		tx, err := database.DB.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		_, err = tx.ExecContext(t.Context(), "UPDATE postbox_messages SET attempts = attempts + 1 WHERE id = 1")
		require.NoError(t, err)

		ctx, cancel := context.WithTimeout(t.Context(), spool.StatementTimeout)
		defer cancel()
		_, err = b.admin.Reschedule(ctx, admin.Filter{Target: b.target, ID: 2}, time.Time{})
		require.NoError(t, err)
		_, err = b.admin.Reschedule(ctx, admin.Filter{Target: b.target, ID: 3}, time.Time{})
		require.ErrorIs(t, err, admin.ErrNotFound)
	})
}
