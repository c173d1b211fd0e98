package forwarder

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// maxTopic is what a topic may have in bytes, on every database.
const maxTopic = 255

// draft turns a message into what is stored. The message itself is left as it is.
func (c PublisherConfig) draft(topic string, msg *message.Message) (spool.Draft, error) {
	if err := checkTopic(topic); err != nil {
		return spool.Draft{}, err
	}
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
	if draft.Key != "" && msg.Metadata.Get(postbox.OrderingKey) != draft.Key {
		draft.Metadata = maps.Clone(metadata)
		if draft.Metadata == nil {
			draft.Metadata = map[string]string{}
		}
		draft.Metadata[postbox.OrderingKey] = draft.Key
	}
	return draft, draft.SetDelay(msg.Metadata)
}

func checkTopic(topic string) error {
	switch {
	case topic == "":
		return errors.New("the topic is empty")
	case len(topic) > maxTopic:
		return fmt.Errorf("the topic has %d bytes, the limit is %d", len(topic), maxTopic)
	case !utf8.ValidString(topic) || strings.ContainsRune(topic, 0):
		return errors.New("the topic is not UTF-8 text, or has a NUL in it")
	}
	return nil
}
