package forwarder_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// An error goes into logs and failure records, and what it quotes came from others.
func TestPublisher_errors_shorten_what_they_quote(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t).Migrate(t)
	long := strings.Repeat("x", 1<<20)
	publisher := publisherFor(t, database, func(c *forwarder.PublisherConfig) { c.MaxPayload = 4 << 20 })
	for name, test := range map[string]struct {
		topic  string
		change func(msg *message.Message)
	}{
		"topic":       {long, func(*message.Message) {}},
		"id":          {"orders", func(msg *message.Message) { msg.UUID = long }},
		"key":         {"orders", func(msg *message.Message) { msg.Metadata.Set(postbox.MetadataOrderingKey, long) }},
		"delay until": {"orders", func(msg *message.Message) { msg.Metadata.Set(delay.DelayedUntilKey, long) }},
		"delay for":   {"orders", func(msg *message.Message) { msg.Metadata.Set(delay.DelayedForKey, long) }},
		"payload":     {"orders", func(msg *message.Message) { msg.UUID, msg.Payload = long[:100], make([]byte, 5<<20) }},
	} {
		err := postbox.InTx(t.Context(), database.DB, func(ctx context.Context, _ *sql.Tx) error {
			msg := newMessage("a", "")
			test.change(msg)
			msg.SetContext(ctx)
			return publisher.Publish(test.topic, msg)
		})
		require.Error(t, err, name)
		require.Less(t, len(err.Error()), 1000, name)
	}
	msg := newMessage("a", "")
	err := publisher.Publish(long, msg)
	require.ErrorIs(t, err, postbox.ErrNoTransaction)
	require.Less(t, len(err.Error()), 1000)
}
