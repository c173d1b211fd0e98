package forwarder

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Whatever message is handed to the outbox, it is stored as it is or refused, and stays as it was.
func FuzzPublisher_draft(f *testing.F) {
	f.Add("orders", "id", []byte("hello"), "partition_key", "k")
	f.Add("\x00", "", []byte(nil), "", "\xff")
	f.Add("orders", "\x00", []byte("\xff"), "_watermill_delayed_for", "1h")
	f.Fuzz(func(t *testing.T, topic, id string, payload []byte, key, value string) {
		config := PublisherConfig{}
		config.setDefaults()
		msg := message.NewMessage(id, payload)
		msg.Metadata.Set(key, value)
		draft, err := config.draft(topic, msg)
		require.Equal(t, message.Metadata{key: value}, msg.Metadata)
		if err != nil {
			return
		}
		require.NotEmpty(t, draft.MessageID)
		require.Equal(t, map[string]string{key: value}, draft.Metadata)
		require.Equal(t, string(payload), string(draft.Payload))
	})
}
