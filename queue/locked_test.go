package queue_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/queue"
)

// Somebody has locked the row of a message whose handler has a transaction. The only worker gives
// that transaction up after a while and goes on with the other messages. Nothing counts as an
// attempt, and when the lock is gone the message is done, once. Also covers G4.
func TestQueue_G3_a_locked_row_holds_up_no_other_handler(t *testing.T) {
	t.Parallel()
	for name, history := range map[string]time.Duration{"removed": 0, "kept": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
				b := newQueueBench(t, database)
				b.Put("k/1", "k/2", "l/1", "m/1")
				unlock := b.lockRow("k/1")
				var runs atomic.Int32
				b.Start(inboxtest.Quick(func(c *queue.Config) {
					c.Transactional, c.Concurrency, c.Retry.Attempts, c.History = true, 1, 1, history
				}), func(msg *message.Message) error {
					if msg.UUID == "k/1" {
						runs.Add(1)
					}
					return b.Effect(msg.Context(), msg)
				})
				b.Eventually(func() bool { return b.Pending() == 2 }, "the others are done while the row is locked")
				require.ElementsMatch(t, []string{"l/1", "m/1"}, b.Effects())
				unlock()
				b.Drained()
				require.LessOrEqual(t, runs.Load(), int32(mostRuns), "it waits for the lock, not the handler")
				require.Equal(t, []string{"k/1", "k/2"}, b.Effects()[2:])
				require.Len(t, b.Effects(), 4)
				require.Empty(t, b.Dead())
				require.Zero(t, b.Count(t, "SELECT COUNT(*) FROM postbox_failures WHERE attempt > 0"))
			})
		})
	}
}

// lockRow locks the row of a message, as a transaction of somebody else's, until unlock is called.
func (b *queueBench) lockRow(id string) (unlock func()) {
	b.T.Helper()
	var row int64
	query := "SELECT id FROM postbox_messages WHERE message_id = ?"
	require.NoError(b.T, b.DB.QueryRowContext(b.T.Context(), b.Bind(query), []byte(id)).Scan(&row))
	tx, err := b.DB.BeginTx(b.T.Context(), nil)
	require.NoError(b.T, err)
	b.T.Cleanup(func() { _ = tx.Rollback() })
	query = "SELECT id FROM postbox_messages WHERE id = ? FOR UPDATE" // on MariaDB any other search locks each row that it meets
	require.NoError(b.T, tx.QueryRowContext(b.T.Context(), b.Bind(query), row).Scan(&row))
	return func() { require.NoError(b.T, tx.Rollback()) }
}
