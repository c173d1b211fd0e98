package queue_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/queue"
)

// MariaDB 11.6.2 and later refuse to lock a row that has changed since the snapshot of a
// transaction. The process that handles a message renews its lease meanwhile, and so must change no
// row that the transaction locks at its end.
func TestQueue_G6_a_handler_in_a_transaction_may_run_longer_than_the_lease_under_snapshot_isolation(t *testing.T) {
	t.Parallel()
	database := testdb.MySQL(t)
	b := newQueueBench(t, database)
	b.Put("a/1")
	strict := b.over(database.OpenWith(t, "innodb_snapshot_isolation=1"))
	var runs atomic.Int32
	entered, proceed := make(chan struct{}), make(chan struct{})
	strict.Start(inboxtest.Quick(func(c *queue.Config) { c.Lease, c.Transactional = time.Second, true }), func(msg *message.Message) error {
		tx, ok := postbox.TxFromContext(msg.Context())
		if !ok {
			return postbox.ErrNoTransaction
		}
		var lanes int
		if err := tx.QueryRowContext(msg.Context(), "SELECT COUNT(*) FROM postbox_lanes").Scan(&lanes); err != nil { // this takes the snapshot
			return err
		}
		if runs.Add(1) == 1 {
			close(entered)
			return inboxtest.Hold(msg.Context(), proceed)
		}
		return nil
	})
	b.Await(entered, "the handler")
	renewed := func() int { return b.Count(t, "SELECT MAX(expires_at) FROM postbox_members") }
	before := renewed()
	b.Eventually(func() bool { return renewed() > before }, "the lease is renewed")
	close(proceed)
	b.Drained()
	require.EqualValues(t, 1, runs.Load())
}
