package queue_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/queue"
)

// A time-out ends the context of the statement that the handler waits for, and so its connection.
// That is an attempt of the message, and its neighbours are done.
func TestQueue_G7_handler_timeout_in_a_transaction_is_an_attempt(t *testing.T) {
	t.Parallel()
	for mode, work := range workers {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				b := newQueueBench(t, database)
				neighbours := inboxtest.Numbers(4)
				b.Put(neighbours[0], neighbours[1], "slow", neighbours[2], neighbours[3])
				timeout := time.Second // half of what the slow one takes on a server, and more than its neighbours take there on a busy machine
				if b.Dialect == postbox.SQLite {
					timeout = 100 * time.Millisecond
				}
				work(b, func(c *queue.BatchConfig) {
					c.Worker.Classify = postbox.ClassifyNetwork
				}, func(ctx context.Context, msg *message.Message) error {
					if msg.UUID != "slow" {
						return b.Effect(ctx, msg)
					}
					tx, _ := postbox.TxFromContext(ctx)
					ctx, end := context.WithTimeout(ctx, timeout)
					defer end()
					_, err := tx.ExecContext(ctx, inboxtest.Slow(b.Dialect))
					return err
				})
				b.Drained()
				require.Equal(t, []string{"slow"}, b.Dead())
				require.ElementsMatch(t, neighbours, b.Effects())
				require.Len(t, b.Failures(), 3)
				for _, text := range b.Failures() {
					require.Contains(t, text, inboxstore.ErrTransactionLost.Error())
				}
			})
		})
	}
}
