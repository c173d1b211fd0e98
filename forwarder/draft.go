package forwarder

import (
	"fmt"
	"maps"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// draft returns the stored form of a message, which it does not change. An error is the message's
// own: no other try can succeed.
func (c PublisherConfig) draft(topic string, msg *message.Message) (spool.Draft, error) {
	metadata := msg.Metadata
	if causation, ok := postbox.CausationFromContext(msg.Context()); ok {
		metadata = causation.Stamp(metadata)
	}
	size := len(msg.Payload)
	for key, value := range metadata {
		size += len(key) + len(value)
	}
	if size > c.MaxPayload {
		return spool.Draft{}, fmt.Errorf("payload and metadata have %d bytes and MaxPayload is %d: store large content elsewhere and send its address", size, c.MaxPayload)
	}
	draft := spool.Draft{
		Topic: topic, MessageID: msg.UUID, Key: c.OrderingKey(topic, msg), Payload: msg.Payload, Metadata: metadata,
	}
	if draft.MessageID == "" {
		draft.MessageID = postbox.NewMessageID()
	}
	if err := draft.SetUnique(metadata); err != nil {
		return spool.Draft{}, err
	}
	if draft.Key != "" && msg.Metadata.Get(postbox.MetadataOrderingKey) != draft.Key {
		draft.Metadata = maps.Clone(draft.Metadata)
		if draft.Metadata == nil {
			draft.Metadata = map[string]string{}
		}
		draft.Metadata[postbox.MetadataOrderingKey] = draft.Key
	}
	if err := draft.Check(); err != nil {
		return spool.Draft{}, err
	}
	return draft, draft.SetDelay(delayOf(msg))
}
