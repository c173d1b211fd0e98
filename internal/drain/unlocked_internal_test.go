package drain

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// MariaDB looks for a message that is gone by any index that may have it. By some it comes to the
// rows of other messages, and waits for those that a transaction of the user has locked.
func TestStatements_of_one_message_wait_for_no_other_row(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		own := newOutbox(t, database)
		d, end := newStepped(database.Open(t), own, 20)
		t.Cleanup(end)
		d.configured.Workers = 0
		require.NoError(t, d.tryOpen(t.Context()))
		for _, id := range []string{"locked", "free"} {
			require.NoError(t, own.Append(t.Context(), database.DB, spool.Run, []spool.Draft{{Topic: "orders", MessageID: id}}))
		}
		require.Eventually(t, func() bool {
			d.pace.at = time.Time{}
			d.step(t.Context())
			return len(d.scheduler.Snapshot().Messages) == 2
		}, time.Minute, testdb.PollPause)
		locked, free := d.scheduler.Snapshot().Messages[0], d.scheduler.Snapshot().Messages[1]

		tx, err := database.DB.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		var id int64
		require.NoError(t, tx.QueryRowContext(t.Context(), database.Bind("SELECT id FROM postbox_messages WHERE id = ? FOR UPDATE"), locked.Ref.ID).Scan(&id))

		s := d.spool.Statements
		failed := s.SettleFailed(d.id.Load(), "one", []dialect.Failed{{AsRead: dialect.AsRead{Ref: free.Ref}, Dead: true}})
		retried := s.SettleFailed(d.id.Load(), "one", []dialect.Failed{{AsRead: dialect.AsRead{Ref: free.Ref}}})
		check := func(state string) {
			for name, statement := range map[string]dialect.Query{
				"lock":      s.LockAsRead(d.id.Load(), []dialect.AsRead{{Ref: free.Ref}}),
				"standing":  s.StandingAsRead(d.id.Load(), []dialect.AsRead{{Ref: free.Ref}}),
				"together":  failed.Together,
				"retry":     retried.Retry,
				"bury":      failed.Bury,
				"note":      failed.Note,
				"remove":    failed.Remove,
				"start":     s.CountStarts(d.id.Load(), []dialect.AsRead{{Ref: free.Ref}}),
				"take back": s.TakeBackStarts(d.id.Load(), []dialect.Ref{free.Ref}),
			} {
				if statement.Text == "" {
					continue // this database has another one
				}
				ctx, cancel := context.WithTimeout(t.Context(), spool.StatementTimeout)
				defer cancel()
				other, err := database.DB.BeginTx(ctx, nil)
				require.NoError(t, err)
				require.NoError(t, spool.Run(ctx, other, statement), "%s a message that %s", name, state)
				require.NoError(t, other.Rollback())
			}
		}
		check("is there")
		database.Exec(t, "DELETE FROM postbox_messages WHERE id = ?", free.Ref.ID)
		check("is gone")
	})
}
