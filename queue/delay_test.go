package queue_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/inboxstore"
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
	operator := b.operator()
	changed, err := operator.RunNow(b.T.Context(), admin.Filter{All: true, Target: admin.Queue("q")})
	require.NoError(b.T, err)
	require.Equal(b.T, len(ids), changed)
}

// admitOnlyReady checks that the outbox has two messages, and that none of them waits.
func admitOnlyReady(b *queueBench) {
	b.T.Helper()
	written, _, err := b.operator().Messages(b.T.Context(), admin.Filter{Target: admin.Outbox("outbox")})
	require.NoError(b.T, err)
	require.Len(b.T, written, 2)
	for _, msg := range written {
		require.Equal(b.T, admin.Ready, msg.Status, msg.MessageID)
	}
}

func (b *queueBench) operator() *admin.Admin {
	b.T.Helper()
	operator, err := admin.New(b.On(b.Pool), admin.Config{}, nil)
	require.NoError(b.T, err)
	return operator
}
