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

// Somebody takes a lane between the statement that keeps two messages and the one that removes
// them. No message is lost, none stands in the history twice, and none that is not removed, also
// where the message of the other lane stood there before, and so as many are removed as were kept.
func TestKeepAndRemove_keeps_as_many_as_it_removes_if_a_lane_is_lost_in_between(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]int{"both are new": 0, "one was kept before": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
				own := newOutbox(t, database)
				require.NoError(t, own.Append(t.Context(), database.DB, spool.Run, []spool.Draft{{Topic: "orders", MessageID: "0"}, {Topic: "orders", MessageID: "1"}}))
				database.Exec(t, "UPDATE postbox_messages SET lane = CASE WHEN message_id = ? THEN 0 ELSE 1 END", []byte("0"))
				d, end := newStepped(database.DB, own, 10)
				defer end()
				require.NoError(t, d.tryOpen(t.Context()))
				require.NoError(t, d.upkeep(t.Context()))
				refs := make([]dialect.Ref, 2)
				for lane := range refs {
					refs[lane] = dialect.Ref{
						Lane: lane, Token: d.lanes.held[lane].token,
						ID:        int64(database.Count(t, "SELECT id FROM postbox_messages WHERE lane = ?", lane)),
						CreatedAt: int64(database.Count(t, "SELECT created_at FROM postbox_messages WHERE lane = ?", lane)),
					}
				}
				keep := func(exec spool.Exec, refs []dialect.Ref) (removed int64, err error) {
					err = spool.InTx(t.Context(), database.DB, d.spool.Statements, func(tx *sql.Tx) error {
						removed, err = own.KeepAndRemove(t.Context(), tx, exec, refs, nil)
						return err
					})
					return removed, err
				}
				kept := func() int { return database.Count(t, "SELECT COUNT(*) FROM postbox_history") }
				pending := func() int { return database.Count(t, "SELECT COUNT(*) FROM postbox_messages") }
				for range before {
					database.Exec(t, "INSERT INTO postbox_history (id, spool, topic, message_id, payload, metadata, created_at, done_at, attempts) "+
						"SELECT id, spool, topic, message_id, payload, metadata, created_at, 2, 1 FROM postbox_messages WHERE lane = 0")
				}
				taken := false
				takeLane := func(ctx context.Context, tx *sql.Tx, query dialect.Query) (sql.Result, error) {
					result, err := spool.Directly(ctx, tx, query)
					if !taken { // the first statement is the one that keeps
						taken = true
						database.Exec(t, "UPDATE postbox_lanes SET token = token + 1 WHERE lane = 1")
					}
					return result, err
				}

				_, err := keep(takeLane, refs)
				require.True(t, taken)
				require.ErrorIs(t, err, spool.ErrLost)
				require.Equal(t, before, kept(), "what is not removed is not kept: it may still die")
				require.Equal(t, 2, pending())

				removed, err := keep(spool.Directly, refs[1:])
				require.NoError(t, err, "by itself it is another's, and so neither kept nor removed")
				require.Zero(t, removed)
				removed, err = keep(spool.Directly, refs[:1])
				require.NoError(t, err)
				require.EqualValues(t, 1, removed)
				refs[1].Token++ // the next holder
				_, err = keep(spool.Directly, refs[1:])
				require.NoError(t, err)
				require.Zero(t, pending())
				require.Equal(t, 2, kept(), "each once")
			})
		})
	}
}

// An operator takes away one of two messages that are done. With a history the removal of both is
// tried again in parts, at once: the other one is in the history after the step, and not still to
// be handled.
func TestRemoval_ends_in_one_step_although_an_operator_took_some_of_its_messages(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		own := newOutbox(t, database)
		require.NoError(t, own.Append(t.Context(), database.DB, spool.Run, []spool.Draft{{Topic: "orders", MessageID: "taken"}, {Topic: "orders", MessageID: "done"}}))
		d, end := newStepped(database.DB, own, 10)
		defer end()
		d.configured.Workers, d.config.Workers, d.configured.History, d.config.History = 0, 0, time.Hour, time.Hour
		d.settle.start = func(work func()) { work() }
		require.NoError(t, d.tryOpen(t.Context()))
		d.step(t.Context())
		require.Len(t, d.scheduler.Snapshot().Messages, 2)
		d.scheduler.SetWorkers(2)
		for range 2 {
			d.scheduler.Finish(d.scheduler.Take(), []spool.Outcome{{Verdict: spool.Done}})
		}
		database.Exec(t, "DELETE FROM postbox_messages WHERE message_id = ?", []byte("taken"))
		d.step(t.Context())
		require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_messages"))
		require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_history"))
	})
}
