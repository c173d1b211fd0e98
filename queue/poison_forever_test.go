package queue_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/internal/unique"
	"github.com/postbox-go/watermill-postbox/queue"
)

// A message that is a little smaller than the outbox takes, and becomes larger by the metadata of a
// dead letter.
func TestQueue_G3_a_dead_letter_that_PoisonOutbox_can_never_take_is_dead_all_the_same(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		small, err := forwarder.NewPublisher(b.On(b.Pool), forwarder.PublisherConfig{MaxPayload: 10}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { _ = small.Close() })
		logger := watermill.NewCaptureLogger()
		b.Logger = logger
		b.Put("a/1", "a/2", "b/1")
		b.Start(inboxtest.Quick(func(c *queue.Config) {
			c.Transactional, c.Poison.Outbox, c.Poison.Topic = true, small, "poison"
		}), func(msg *message.Message) error {
			if msg.UUID == "a/1" {
				return postbox.Permanent(inboxtest.ErrHandler)
			}
			return b.Effect(msg.Context(), msg)
		})
		b.Drained()
		require.Equal(t, []string{"a/1"}, b.Dead())
		require.ElementsMatch(t, []string{"a/2", "b/1"}, b.Effects())
		lines := 0
		for _, line := range logger.Captured()[watermill.ErrorLogLevel] {
			if strings.Contains(line.Msg, "Poison.Outbox can never take a dead letter") {
				lines++
			}
		}
		require.Equal(t, 1, lines)
	})
}

// The producer of a message sets what only the code of a service may say to its own outbox: here
// that a waiting message of the service is to be replaced, and something that no outbox takes.
func TestQueue_control_metadata_from_outside_has_no_effect_in_an_outbox(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		outbox := b.outbox()
		err := postbox.InTx(t.Context(), b.Pool, func(ctx context.Context, _ *sql.Tx) error {
			victim := postbox.ReplaceWaiting(message.NewMessage("victim", nil), "alice")
			victim.SetContext(ctx)
			return outbox.Publish("poison", victim)
		})
		require.NoError(t, err)
		for id, mode := range map[string]string{"replaces": unique.Replace, "skips": unique.Skip, "is nonsense": "x"} {
			msg := message.NewMessage(id, nil)
			msg.Metadata = message.Metadata{unique.Key: "alice", unique.Mode: mode, delay.DelayedForKey: "1ms"}
			_, err := b.Store.Defer(t.Context(), "q", inboxstore.Key{Consumer: "q", MessageID: id}, msg)
			require.NoError(t, err)
		}
		b.Start(inboxtest.Quick(func(c *queue.Config) {
			c.Transactional, c.Poison.Outbox, c.Poison.Topic = true, outbox, "poison"
		}), func(*message.Message) error { return postbox.Permanent(inboxtest.ErrHandler) })
		b.Drained()
		require.ElementsMatch(t, []string{"is nonsense", "replaces", "skips"}, b.Dead())
		require.ElementsMatch(t, []string{"is nonsense", "replaces", "skips", "victim"},
			b.List("SELECT message_id FROM postbox_messages WHERE topic = 'poison'"))
	})
}
