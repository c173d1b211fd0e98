package inboxstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// HandlerTimeout ends the context of the statement that the handler waits for, and so its connection. That is an attempt of the
// message, and its neighbours are done.
func TestQueue_G7_handler_timeout_in_a_transaction_is_an_attempt(t *testing.T) {
	t.Parallel()
	for mode, work := range workers {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				b := newQueueBench(t, database)
				neighbours := numbers(4)
				b.put(neighbours[0], neighbours[1], "slow", neighbours[2], neighbours[3])
				work(b, func(c *inboxstore.BatchConfig) {
					c.QueueConfig.HandlerTimeout, c.QueueConfig.Classify = 100*time.Millisecond, postbox.ClassifyNetwork
				}, func(ctx context.Context, msg *message.Message) error {
					if msg.UUID != "slow" {
						return b.effect(ctx, msg)
					}
					tx, _ := postbox.TxFromContext(ctx)
					_, err := tx.ExecContext(ctx, slow(b.Dialect))
					return err
				})
				b.drained()
				require.Equal(t, []string{"slow"}, b.dead())
				require.ElementsMatch(t, neighbours, b.effects())
				require.Len(t, b.failures(), 3)
				for _, text := range b.failures() {
					require.Contains(t, text, inboxstore.ErrTransactionLost.Error())
				}
			})
		})
	}
}
