package queue_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/queue"
)

// The queue has waited: no outbox may wait again, neither one to which the handler passes the
// message on, nor PoisonOutbox.
func TestQueue_delays_a_message_once(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		outbox := b.outbox()
		putDelayed(b, "passed on", "dead")
		config := inboxtest.Quick(func(c *queue.Config) { c.Transactional, c.Poison.Outbox, c.Poison.Topic = true, outbox, "next" })
		p := b.Start(config, func(msg *message.Message) error {
			if msg.UUID == "dead" {
				return postbox.Permanent(inboxtest.ErrHandler)
			}
			return outbox.Publish("next", msg)
		})
		b.Drained()
		p.Stop()
		require.Equal(t, []string{"dead"}, b.Dead())
		admitOnlyReady(b)
	})
}

func TestBatch_delays_a_message_once(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		outbox := b.outbox()
		putDelayed(b, "1", "2")
		b.Batch(inboxtest.QuickBatch(func(c *queue.BatchConfig) { c.Size, c.Worker.Transactional = 1, true }),
			func(_ context.Context, messages []*message.Message) error { return outbox.Publish("next", messages...) })
		b.Drained()
		admitOnlyReady(b)
	})
}

// putDelayed stores messages whose delay is an hour, and lets that pass.
func putDelayed(b *queueBench, ids ...string) {
	b.T.Helper()
	putWithDelay(b, func(id string) *message.Message { return message.NewMessage(id, nil) }, ids...)
}

func putWithDelay(b *queueBench, made func(id string) *message.Message, ids ...string) {
	b.T.Helper()
	for _, id := range ids {
		msg := made(id)
		delay.Message(msg, delay.For(time.Hour))
		_, err := b.Store.Defer(b.T.Context(), "q", inboxstore.Key{Consumer: "q", MessageID: id}, msg)
		require.NoError(b.T, err)
	}
	// As an operator does.
	result, err := b.DB.ExecContext(b.T.Context(), fmt.Sprintf("UPDATE postbox_messages SET available_at = 0 WHERE topic = 'q' AND state = %d AND available_at > 0", dialect.StateScheduled))
	require.NoError(b.T, err)
	changed, err := result.RowsAffected()
	require.NoError(b.T, err)
	require.EqualValues(b.T, len(ids), changed)
}

// admitOnlyReady checks that the outbox has two messages, and that none of them waits.
func admitOnlyReady(b *queueBench) {
	b.T.Helper()
	const written = "SELECT COUNT(*) FROM postbox_messages WHERE spool = (SELECT id FROM postbox_spools WHERE name = 'outbox')"
	require.Equal(b.T, 2, b.Count(b.T, written))
	require.Equal(b.T, 2, b.Count(b.T, written+" AND state = ?", dialect.StateReady))
}
