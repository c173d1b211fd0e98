package middleware

import (
	"bytes"
	"maps"

	"github.com/ThreeDotsLabs/watermill/message"
)

// delivered is a message as it came to the inbox. A handler may change its message, for example decrypt the payload in place, and then fail: whatever happens
// to the message after that begins with what was delivered.
type delivered struct {
	uuid     string
	payload  message.Payload
	metadata message.Metadata
}

func deliveredAs(msg *message.Message) delivered {
	return delivered{uuid: msg.UUID, payload: msg.Payload, metadata: msg.Metadata}
}

// message returns the message as it was delivered.
func (d delivered) message() *message.Message {
	return &message.Message{UUID: d.uuid, Payload: d.payload, Metadata: d.metadata}
}

// give gives the message to the handler, with bytes and metadata of its own: the delivered ones belong to the subscriber, which may deliver them again.
func (d delivered) give(msg *message.Message) {
	msg.UUID, msg.Payload, msg.Metadata = d.uuid, bytes.Clone(d.payload), maps.Clone(d.metadata)
}

// restore undoes what the handler has done to the message.
func (d delivered) restore(msg *message.Message) {
	msg.UUID, msg.Payload, msg.Metadata = d.uuid, d.payload, d.metadata
}
